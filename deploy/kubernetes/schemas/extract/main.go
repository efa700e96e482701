// Command extract writes the JSON Schemas beside it: of the kinds that the manifests
// use and of nothing else, so that "make deploy-check" needs no network. The
// schemas come from the Go modules of Kubernetes, the Prometheus operator and KEDA,
// in the versions below; run it from the root of the tree when they change:
//
//	go run ./deploy/kubernetes/schemas/extract
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

const into = "deploy/kubernetes/schemas"

// builtin are Kubernetes' own kinds, by the name of the file.
var builtin = map[string]string{
	"configmap-v1":                  "io.k8s.api.core.v1.ConfigMap",
	"secret-v1":                     "io.k8s.api.core.v1.Secret",
	"service-v1":                    "io.k8s.api.core.v1.Service",
	"serviceaccount-v1":             "io.k8s.api.core.v1.ServiceAccount",
	"deployment-apps-v1":            "io.k8s.api.apps.v1.Deployment",
	"job-batch-v1":                  "io.k8s.api.batch.v1.Job",
	"poddisruptionbudget-policy-v1": "io.k8s.api.policy.v1.PodDisruptionBudget",
}

// custom are the kinds of others: module, file, version of the kind.
var custom = map[string][3]string{
	"servicemonitor-monitoring-v1": {"github.com/prometheus-operator/prometheus-operator@v0.85.0",
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml", "v1"},
	"prometheusrule-monitoring-v1": {"github.com/prometheus-operator/prometheus-operator@v0.85.0",
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml", "v1"},
	"scaledobject-keda-v1alpha1": {"github.com/kedacore/keda/v2@v2.21.0", "config/crd/bases/keda.sh_scaledobjects.yaml", "v1alpha1"},
}

type object = map[string]any

func main() {
	if err := run(); err != nil {
		slog.Error("schemas are not written", "err", err) //nolint:sloglint // a program of its own has no other logger
		os.Exit(1)                                        //nolint:forbidigo // this is main
	}
}

func run() error {
	dir, err := module("k8s.io/kubernetes@v1.35.0")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(dir, "api/openapi-spec/swagger.json"))
	if err != nil {
		return err
	}
	var swagger struct{ Definitions object }
	if err := json.Unmarshal(data, &swagger); err != nil {
		return err
	}
	for name, kind := range builtin {
		used := object{}
		follow(object{"$ref": "#/definitions/" + kind}, swagger.Definitions, used)
		if err := write(name, object{"$ref": "#/definitions/" + kind, "definitions": used}); err != nil {
			return err
		}
	}
	for name, from := range custom {
		if err := writeCustom(name, from); err != nil {
			return err
		}
	}
	return nil
}

func writeCustom(name string, from [3]string) error {
	dir, err := module(from[0])
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(dir, from[1]))
	if err != nil {
		return err
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string
				Schema struct {
					OpenAPIV3Schema object `yaml:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := yaml.Unmarshal(data, &crd); err != nil {
		return err
	}
	for _, v := range crd.Spec.Versions {
		if v.Name == from[2] {
			return write(name, v.Schema.OpenAPIV3Schema)
		}
	}
	return fmt.Errorf("%s has no version %s", from[1], from[2])
}

// module is where the module cache has a module, which is downloaded if need be.
func module(version string) (dir string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", version) //nolint:noctx // ends with the program
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w", version, err)
	}
	var m struct{ Dir string }
	return m.Dir, json.Unmarshal(out, &m)
}

// follow collects the definitions that v refers to, and those that they refer to.
func follow(v any, all, used object) {
	switch v := v.(type) {
	case object:
		if ref, ok := v["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, "#/definitions/")
			if used[name] == nil {
				used[name] = all[name]
				follow(all[name], all, used)
			}
		}
		for _, e := range v {
			follow(e, all, used)
		}
	case []any:
		for _, e := range v {
			follow(e, all, used)
		}
	}
}

func write(name string, schema object) error {
	tighten(schema)
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(schema); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(into, name+".json"), b.Bytes(), 0o644) //nolint:gosec // read by everyone
}

// tighten leaves what judges a document, refuses properties that are not named,
// and says numbers-or-texts the way JSON Schema does.
func tighten(v any) {
	switch v := v.(type) {
	case object:
		for key := range v {
			if _, isProperty := v[key].(object); !isProperty && (key == "description" || key == "default" || strings.HasPrefix(key, "x-kubernetes-list") ||
				strings.HasPrefix(key, "x-kubernetes-map") || strings.HasPrefix(key, "x-kubernetes-patch") || key == "x-kubernetes-validations" ||
				key == "x-kubernetes-group-version-kind" || key == "x-kubernetes-unions") {
				delete(v, key)
			}
		}
		if v["format"] == "int-or-string" || v["x-kubernetes-int-or-string"] == true {
			delete(v, "format")
			delete(v, "anyOf")
			v["type"] = []any{"integer", "string"}
		}
		if properties, ok := v["properties"].(object); ok && v["additionalProperties"] == nil && v["x-kubernetes-preserve-unknown-fields"] == nil && len(properties) > 0 {
			v["additionalProperties"] = false
		}
		for name, e := range v {
			if q, ok := e.(object); ok && strings.HasSuffix(name, ".resource.Quantity") {
				q["type"] = []any{"string", "number"}
			}
			tighten(e)
		}
	case []any:
		for _, e := range v {
			tighten(e)
		}
	}
}
