package brain

import (
	"testing"

	"ledge/api/board"
)

// Every request of the table is answered, and nothing else is, with a control plane and without.
func TestBoardAnswersItsTable(t *testing.T) {
	for name, p := range map[string]*plane{"agent": nil, "serve": {}} {
		t.Run(name, func(t *testing.T) {
			answers := (&boardAPI{plane: p}).answers()
			for _, r := range board.Requests {
				if answers[r.Pattern()] == nil {
					t.Errorf("nobody answers %s", r.Pattern())
				}
				delete(answers, r.Pattern())
			}
			for pattern := range answers {
				t.Errorf("%s is not in the table", pattern)
			}
		})
	}
}
