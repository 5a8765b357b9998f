package kubeport

import "context"

// Look is one turn of Run.
func (p *Port) Look(ctx context.Context) bool { return p.look(ctx) }

// MostAnswers is how many answers of a sort are remembered.
const MostAnswers = mostAnswers

// Remembered is how many answers a gate has kept of each sort.
func (g *Gate) Remembered() []int {
	return []int{len(g.good.kept), len(g.bad.kept), len(g.allowed.kept), len(g.denied.kept)}
}
