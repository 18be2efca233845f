// An identity provider for tests: Dex with its state in memory. The configuration is the only argument. Each line of standard
// input adds or replaces a user, or removes one without groups; "done" answers it. tests/provision_kube.py builds it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/crypto/bcrypt"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/server/connectors"
	"github.com/dexidp/dex/server/signer"
	"github.com/dexidp/dex/server/tokens"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
)

type config struct {
	Listen    string                  `json:"listen"`
	Algorithm jose.SignatureAlgorithm `json:"algorithm"`
	IDTokensS int                     `json:"idTokensS"`
	Clients   []storage.Client        `json:"clients"`
	Cert      string                  `json:"cert"`
	Key       string                  `json:"key"`
}

// The memory of Dex, with users that are replaced in one step. A refresh reads users and sessions while it changes its token, which
// other stores allow; that of the memory has one lock for all.
type directory struct {
	storage.Storage
	users sync.Map
}

func (d *directory) GetPassword(_ context.Context, email string) (storage.Password, error) {
	if found, exists := d.users.Load(email); exists {
		return found.(storage.Password), nil
	}
	return storage.Password{}, storage.ErrNotFound
}

func (d *directory) UpdateRefreshToken(
	ctx context.Context, id string, update func(storage.RefreshToken) (storage.RefreshToken, error),
) error {
	old, err := d.GetRefresh(ctx, id)
	if err != nil {
		return err
	}
	changed, err := update(old)
	if err != nil {
		return err
	}
	put := func(storage.RefreshToken) (storage.RefreshToken, error) { return changed, nil }
	return d.Storage.UpdateRefreshToken(ctx, id, put)
}

type user struct {
	Email    string   `json:"email"`
	Password string   `json:"password"`
	Groups   []string `json:"groups"`
	Verified *bool    `json:"verified"`
	Removed  bool     `json:"removed"`
}

func main() {
	var c config
	check(json.Unmarshal([]byte(os.Args[1]), &c))
	ctx := context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	state := &directory{Storage: memory.New(logger)}
	for _, client := range c.Clients {
		check(state.CreateClient(ctx, client))
	}
	local := storage.Connector{ID: connectors.LocalConnector, Name: "Email", Type: connectors.LocalConnector}
	check(state.CreateConnector(ctx, local))
	validity := time.Duration(c.IDTokensS) * time.Second
	keys := signer.LocalConfig{KeysRotationPeriod: "6h", Algorithm: c.Algorithm}
	sign, err := keys.Open(ctx, state, validity, time.Now, logger)
	check(err)
	refresh, err := tokens.NewRefreshTokenPolicy(logger, false, "", "", "1ms")
	check(err)
	dex, err := server.NewServer(ctx, server.Config{
		Issuer:             fmt.Sprintf("http://%s/dex", c.Listen),
		Storage:            state,
		SkipApprovalScreen: true,
		PasswordConnector:  connectors.LocalConnector,
		IDTokensValidFor:   validity,
		RefreshTokenPolicy: refresh,
		Signer:             sign,
		Web:                server.WebConfig{WebFS: web.FS()},
		Logger:             logger,
		Now:                func() time.Time { return time.Now().UTC() },
	})
	check(err)
	go state.follow()
	check(http.ListenAndServe(c.Listen, dex))
}

func (d *directory) follow() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var given user
		check(json.Unmarshal(lines.Bytes(), &given))
		hash, err := bcrypt.GenerateFromPassword([]byte(given.Password), bcrypt.DefaultCost)
		check(err)
		d.users.Store(given.Email, storage.Password{
			Email: given.Email, Hash: hash, Username: given.Email, UserID: given.Email, Groups: given.Groups,
			EmailVerified: given.Verified,
		})
		if given.Removed {
			d.users.Delete(given.Email)
		}
		fmt.Println("done")
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
