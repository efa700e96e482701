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
	"io"

	"github.com/milena-project/milena/internal/kafka"
	"github.com/milena-project/milena/schemas"
)

// ErrDamaged: an export is not whole. Nothing was imported.
var ErrDamaged = errors.New("the export is damaged")

// maxLine bounds one line of an export: the largest record, in base64, and headers.
const maxLine = 64 << 20

// ReadExport hands over the records of an export, gzip or not, and returns its last
// line. An error that is ErrDamaged comes only after records were handed over, so
// whoever acts on them reads it twice. Bytes are fn's to keep.
func ReadExport(r io.Reader, fn func(schemas.Record) error) (ExportEnd, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		zip, err := gzip.NewReader(in)
		if err != nil {
			return ExportEnd{}, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		in = bufio.NewReaderSize(zip, 64<<10)
	}
	x := &importer{}
	sum := sha256.New()
	for n := 1; ; n++ {
		line, err := readLine(in)
		if err != nil {
			return ExportEnd{}, fmt.Errorf("%w: line %d: it ends without its last line (%w)", ErrDamaged, n, err)
		}
		end, err := x.line(n, line, fn)
		if err != nil {
			return ExportEnd{}, err
		}
		if end == nil {
			sum.Write(line)
			continue
		}
		have := hex.EncodeToString(sum.Sum(nil))
		if x.version > oldestVersion {
			have = end.sumWith(sum)
		}
		switch {
		case have != end.SHA256:
			return *end, fmt.Errorf("%w: its sum is %s, its last line says %s", ErrDamaged, have, end.SHA256)
		case end.Letters != x.letters:
			return *end, fmt.Errorf("%w: it has %d letters, its last line says %d", ErrDamaged, x.letters, end.Letters)
		}
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			return *end, fmt.Errorf("%w: something follows its last line", ErrDamaged)
		}
		return *end, nil
	}
}

type importer struct {
	letters int64
	version int
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxLine:
			return nil, errors.New("a line is too long")
		}
	}
}

func (x *importer) line(n int, line []byte, fn func(schemas.Record) error) (*ExportEnd, error) {
	var kind struct {
		Line    string `json:"line"`
		Version int    `json:"version"`
	}
	damaged := func(err error) error { return fmt.Errorf("%w: line %d: %w", ErrDamaged, n, err) }
	err := json.Unmarshal(line, &kind)
	switch {
	case n == 1 && (err != nil || kind.Line != lineHead):
		return nil, damaged(errors.New("this is not a file that milena dlq export wrote"))
	case err != nil:
		return nil, damaged(err)
	case n == 1 && (kind.Version < oldestVersion || kind.Version > exportVersion):
		return nil, damaged(fmt.Errorf("it is of version %d; this milena reads %d to %d, another one may read it", kind.Version, oldestVersion, exportVersion))
	case n == 1:
		x.version = kind.Version
		return nil, nil
	case kind.Line == lineLetter:
		var l exportLetter
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, damaged(err)
		}
		x.letters++
		return nil, fn(l.record())
	case kind.Line == lineEnd:
		end := new(ExportEnd)
		if err := json.Unmarshal(line, end); err != nil {
			return nil, damaged(err)
		}
		return end, nil
	}
	return nil, damaged(fmt.Errorf("unknown line %q", kind.Line))
}

func (l *exportLetter) record() schemas.Record {
	rec := schemas.Record{Partition: l.Partition, Offset: l.Offset, Timestamp: l.Written, Key: []byte(l.Key), Value: l.Value}
	if rec.Value == nil {
		rec.Value = []byte{} // a letter is never null
	}
	for _, h := range l.Headers {
		header := schemas.Header{Key: h.Key}
		if h.KeyBase64 != nil {
			header.Key = string(h.KeyBase64)
		}
		switch {
		case h.Text != nil:
			header.Value = []byte(*h.Text)
		case h.Base64 != nil:
			header.Value = *h.Base64
		}
		rec.Headers = append(rec.Headers, header)
	}
	return rec
}

// Verified is an export that was read to its end and is whole.
type Verified struct {
	ExportEnd

	lives     lives
	endpoints map[string]struct{}
}

// Verify reads an export to its end: ErrDamaged if it is not whole or holds what is
// no dead letter.
func Verify(r io.Reader) (*Verified, error) {
	v := &Verified{endpoints: map[string]struct{}{}}
	end, err := ReadExport(r, func(rec schemas.Record) error {
		l, err := schemas.ParseLetter(rec)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		v.lives.add(&l)
		v.endpoints[l.EndpointID] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.ExportEnd = end
	v.lives.sort()
	return v, nil
}

// PlanImport is the plan of an import, whose source was verified.
func PlanImport(who, why, name string, source *Verified) *Plan {
	return &Plan{Job: Job{Kind: schemas.RunImport, Who: who, Why: why, Export: name},
		Selection: &Selection{Count: source.Letters}, Write: source.Letters, source: source}
}

// imports writes the letters of an export, each into the partition of its endpoint, but
// for those that are there already. So to do it again, or to the end after a crash, does
// no harm. What the topic knows is read while the run is live: no discard begins, so
// until its end only a replay settles a letter, and has written its next life before.
func (r *runner) imports(ctx context.Context) error {
	n, err := r.store.reader.Partitions(ctx, r.store.topic)
	if err != nil {
		return explain(err, r.store.topic, "Write")
	}
	source := r.plan.source
	if err := r.store.lookUp(ctx, source); err != nil {
		return explain(err, r.store.topic, "Read")
	}
	if _, err := r.opts.Source.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = ReadExport(r.opts.Source, func(rec schemas.Record) error {
		l, err := schemas.ParseLetter(rec)
		if err != nil {
			return err
		}
		known := source.lives.find(hashOfString(l.ID()))
		if known == nil {
			return fmt.Errorf("%w: it is not what it was when it was checked", ErrDamaged)
		}
		generation, there := known.generation(l.Generation)
		if there {
			r.skip(SkipThere)
			return nil
		}
		if generation != l.Generation {
			l.Generation = generation
			rec = l.Record()
		}
		key := []byte(l.EndpointID) // none: where its owner would write it too
		return r.put(ctx, kafka.Message{Topic: r.store.topic, Partition: kafka.Partition(key, n), Key: rec.Key, Value: rec.Value, Headers: rec.Headers})
	})
	return err
}
