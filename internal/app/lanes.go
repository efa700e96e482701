package app

import (
	"encoding/json"
	"net/http"
)

// lanesHandler answers what an endpoint's lane in this process is doing now.
func (a *App) lanesHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("endpoint")
		state, ok := a.dispatch.Lane(id)
		if !ok {
			http.Error(w, "endpoint "+id+" has no lane in this process: it has no work here, or another process owns its partition", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(state)
	})
}
