package board

import "ledge/pki"

// NewToken is the answer of POST /ledge/v1/tokens.
type NewToken struct {
	Token  string   `json:"token"`
	Server []string `json:"server"` // where boards reach this control plane
	Local  bool     `json:"local"`  // nobody but this board does
}

// Revoked is the answer of DELETE /ledge/v1/boards.
type Revoked struct {
	Board    pki.BoardInfo `json:"board"`
	Secrets  []string      `json:"secrets,omitempty"`  // that its pods name, or take requests in with
	Accounts []string      `json:"accounts,omitempty"` // with rights, that its pods run as
}
