package realkafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Versions that the suite is run against. Any other published one works too.
const (
	DefaultVersion = "4.4.0"
	Version3       = "3.9.1" // the last line with clusters that still migrate from ZooKeeper
)

// unavailableError says what this machine lacks; tests skip on it.
type unavailableError struct{ lacks string }

func (e *unavailableError) Error() string {
	return "no real Kafka here: " + e.lacks + " (Debian: apt-get install default-jre-headless maven)"
}

// pomTemplate brings the broker and the binding without which it logs nothing:
// the jars carry slf4j's API alone. The binding stands first, so that its
// version of log4j wins and the two fit.
const pomTemplate = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>milena</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>%s</dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>%s</version></dependency>
  </dependencies>
</project>
`

const (
	bindingLog4j2   = "<groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.5</version>"
	bindingReload4j = "<groupId>org.slf4j</groupId><artifactId>slf4j-reload4j</artifactId><version>1.7.36</version>"
)

// downloadTimeout bounds Maven on a slow mirror.
const downloadTimeout = 10 * time.Minute

// artifacts returns the folder with a version's jars, downloading them on
// first use. Test processes that ask at the same time wait for one download.
func artifacts(ctx context.Context, version string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir() // no home directory, as in some CI
	}
	root := filepath.Join(cache, "milena-kafka")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return "", err
	}
	libs := filepath.Join(root, version)
	unlock, err := lockFile(filepath.Join(root, version+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(libs); err == nil {
		return libs, nil // complete: it is renamed into place only when it is
	}
	if _, err := exec.LookPath("mvn"); err != nil {
		return "", &unavailableError{"Maven is not installed"}
	}
	tmp, err := os.MkdirTemp(root, "download-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := download(ctx, version, tmp); err != nil {
		return "", err
	}
	return libs, os.Rename(filepath.Join(tmp, "libs"), libs)
}

func download(ctx context.Context, version, dir string) error {
	binding := bindingLog4j2
	if strings.HasPrefix(version, "3.") {
		binding = bindingReload4j
	}
	pom := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(pom, fmt.Appendf(nil, pomTemplate, binding, version), 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies",
		"-DoutputDirectory="+filepath.Join(dir, "libs"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("download Kafka %s by Maven: %w\n%s", version, err, out)
	}
	return nil
}

// lockFile takes an exclusive lock that the kernel drops when the process ends.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
