package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
)

// A case returns nil if all was as it should be, a refusal if it was refused as docs/COMMANDS.md says, and any other
// error if it failed.
type testCase struct {
	name string
	run  func(*suite) error
}

type refusal struct{ reply error }

func (r refusal) Error() string { return r.reply.Error() }

func report(library, name string, err error) {
	outcome, detail := "ok", ""
	switch err := err.(type) {
	case nil:
	case refusal:
		outcome, detail = "refused", err.Error()
	default:
		outcome, detail = "failed", err.Error()
	}
	fmt.Fprintf(os.Stdout, "%s\t%s\t%s\t%s\n", outcome, library, name, strings.Join(strings.Fields(detail), " "))
}

// needsOnePartition judges the error of what is refused unless all keys are of one partition.
func (s *suite) needsOnePartition(err error) error {
	if s.together {
		return err
	}
	if err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") {
		return refusal{err}
	}
	return fmt.Errorf("not refused with CROSSSLOT: %v", err)
}

func equal(is, shouldBe any) error {
	if reflect.DeepEqual(is, shouldBe) {
		return nil
	}
	return fmt.Errorf("%.200s, should be %.200s", fmt.Sprintf("%#v", is), fmt.Sprintf("%#v", shouldBe))
}

// first is the first error of several.
func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
