package dlq

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/milena-project/milena/schemas"
)

// Stdout is the name of an export that goes to standard output.
const Stdout = "-"

// The lines of an export: a head, one for each letter, an end.
const (
	lineHead   = "export"
	lineLetter = "letter"
	lineEnd    = "end"
)

const (
	exportVersion = 2
	oldestVersion = 1 // whose sum did not cover its last line
)

type exportHead struct {
	Line    string    `json:"line"`
	Version int       `json:"version"`
	Topic   string    `json:"topic"`
	At      time.Time `json:"at"`
	Filter  Filter    `json:"filter"`
}

// exportLetter is a letter, byte for byte: key, headers and value are what stands in
// the topic. The rest is for people and for jq, and is not read again.
type exportLetter struct {
	Line       string         `json:"line"`
	Key        string         `json:"key"`
	EndpointID string         `json:"endpoint_id"`
	Reason     schemas.Reason `json:"reason"`
	DiedAt     time.Time      `json:"died_at"`
	Written    time.Time      `json:"written"`
	Partition  int32          `json:"partition"`
	Offset     int64          `json:"offset"`
	Headers    []exportHeader `json:"headers"`
	Value      []byte         `json:"value"` // base64
}

// exportHeader has Text where the value is UTF-8, Base64 where it is not, and neither
// where it is null. KeyBase64 is there where the key is not UTF-8, and counts then.
type exportHeader struct {
	Key       string  `json:"key"`
	KeyBase64 []byte  `json:"key_base64,omitempty"`
	Text      *string `json:"text,omitempty"`
	Base64    *[]byte `json:"base64,omitempty"`
}

// ExportEnd is the last line of an export. Without it, or with another sum, the
// export is damaged. The sum is of all lines before and of this one as it is without it.
type ExportEnd struct {
	Line     string `json:"line"`
	Letters  int64  `json:"letters"`
	Complete bool   `json:"complete"` // false: it was ended early
	SHA256   string `json:"sha256"`   // in hex
}

// sumWith adds the line itself to the sum of all lines before.
func (e ExportEnd) sumWith(before hash.Hash) string {
	e.SHA256 = ""
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // words and numbers
	}
	before.Write(line)
	return hex.EncodeToString(before.Sum(nil))
}

// Select reads which letters a filter selects now, for Export.
func (s *Store) Select(ctx context.Context, f Filter) (*Selection, error) {
	snap, err := s.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return s.choose(ctx, f, snap, nil, func(*Entry) string { return "" })
}

// Export writes the letters of a selection, those of a partition oldest first, but for
// those that the topic has no longer. When ctx ends, it writes an end that says so and
// returns ctx's error.
func (s *Store) Export(ctx context.Context, w io.Writer, sel *Selection, f Filter) (ExportEnd, error) {
	buf := bufio.NewWriterSize(w, 64<<10)
	x := &exporter{sum: sha256.New(), done: &s.done}
	x.out = io.MultiWriter(buf, x.sum)
	x.enc = json.NewEncoder(x.out)
	x.enc.SetEscapeHTML(false)
	if err := x.enc.Encode(exportHead{Line: lineHead, Version: exportVersion, Topic: s.topic, At: timeNow(), Filter: f}); err != nil {
		return ExportEnd{}, err
	}
	s.reads(sel.Count)
	var err error
	for _, p := range slices.Sorted(maps.Keys(sel.offsets)) {
		if err = s.reread(ctx, sel, p, sel.offsets[p], 1<<20, nil, x.letter); err != nil {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		return ExportEnd{}, err
	}
	end := ExportEnd{Line: lineEnd, Letters: x.n, Complete: err == nil}
	end.SHA256 = end.sumWith(x.sum)
	return end, errors.Join(err, x.enc.Encode(end), buf.Flush())
}

type exporter struct {
	out io.Writer
	enc *json.Encoder
	sum hash.Hash
	n   int64

	done *atomic.Int64 // of Reading
}

func (x *exporter) letter(e *Entry) error {
	x.n++
	x.done.Add(1)
	return x.enc.Encode(exportLetter{Line: lineLetter, Key: string(e.rec.Key), EndpointID: e.EndpointID, Reason: e.Reason,
		DiedAt: e.DiedAt, Written: e.Written, Partition: e.Partition, Offset: e.Offset,
		Headers: toExport(e.rec.Headers), Value: e.rec.Value})
}

func toExport(in []schemas.Header) []exportHeader {
	out := make([]exportHeader, len(in))
	for i, h := range in {
		out[i].Key = h.Key
		if !utf8.ValidString(h.Key) {
			out[i].KeyBase64 = []byte(h.Key)
		}
		switch {
		case h.Value == nil:
		case utf8.Valid(h.Value):
			text := string(h.Value)
			out[i].Text = &text
		default:
			out[i].Base64 = &h.Value
		}
	}
	return out
}

// ExportFile exports to a new file; gzip when its name ends in .gz. The file has its
// name only once it is whole and on disk.
func (s *Store) ExportFile(ctx context.Context, name string, sel *Selection, f Filter) (end ExportEnd, err error) {
	err = writeFile(name, func(file io.Writer) (err error) {
		if !strings.HasSuffix(name, ".gz") {
			end, err = s.Export(ctx, file, sel, f)
			return err
		}
		zip := gzip.NewWriter(file)
		if end, err = s.Export(ctx, zip, sel, f); err != nil {
			return err
		}
		return zip.Close()
	})
	return end, err
}

// writeFile makes a new file of what write writes. Until it is whole it has a name of
// its own, for two discards may be told the same one at the same time.
func writeFile(name string, write func(io.Writer) error) (err error) {
	if _, err := os.Lstat(name); err == nil {
		return takenError(name)
	}
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part") // for its owner alone: there are payloads in it
	if err != nil {
		return fmt.Errorf("the export cannot be made: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(file.Name())
		}
	}()
	if err = write(file); err != nil {
		return err
	}
	if err = file.Sync(); err != nil {
		return err
	}
	if err = file.Close(); err != nil {
		return err
	}
	if err = publish(file.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// publish gives a whole export its name, unless another has taken it meanwhile: a
// rename would put ours in its place, and its letters may be nowhere else.
func publish(part, name string) error {
	err := os.Link(part, name)
	switch {
	case err == nil:
		return os.Remove(part)
	case errors.Is(err, fs.ErrExist):
		return takenError(name)
	}
	return os.Rename(part, name) // a file system without links
}

func takenError(name string) error {
	return fmt.Errorf("%s is there already, and is not written over", name)
}

// syncDir makes a rename durable: without it a power cut may take the name of a file
// whose letters were discarded meanwhile.
func syncDir(name string) error {
	if runtime.GOOS == "windows" {
		return nil // a directory cannot be opened there, and NTFS journals the rename
	}
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// resumedName is the name of the export of what was left when a discard went on.
func resumedName(name string) string {
	base, ext := name, ""
	for _, e := range []string{".gz", ".jsonl", ".json"} {
		if b, ok := strings.CutSuffix(base, e); ok {
			base, ext = b, e+ext
		}
	}
	return base + ".resumed-" + time.Now().UTC().Format("20060102-150405") + ext
}
