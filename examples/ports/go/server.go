// A server of the evaluation protocol over HTTP, with the standard library. Your program is in program.go.
package main

import (
	"bytes"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

type object = map[string]any

const maxBatch, maxBytes, atOnce = 1000, 64 << 20, 8

//go:embed v1.json
var document []byte
var contract struct {
	Components struct{ Schemas map[string]object }
}

var (
	token    = os.Getenv("GEPA_TOKEN")
	slots    = make(chan bool, atOnce)
	instance = time.Now().Format(time.RFC3339Nano)
	ours     = regexp.MustCompile(`^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$`)
	jsonType = regexp.MustCompile(`(?i)^application/json *(;|$)`)
	shapes   = map[string]string{"discover": "DiscoverParams", "evaluate": "EvaluateParams"}
	messages = map[int]string{-32700: "Parse error", -32600: "Invalid Request", -32601: "Method not found", -32602: "Invalid params", -32603: "Internal error",
		-32020: "Version not supported", -32021: "Unauthorized", -32022: "Unknown candidate", -32023: "Unknown example", -32031: "Limit exceeded"}
)

// Result is what the program made of an example. The model that proposes better texts reads Feedback.
type Result struct {
	Output          any
	Score           float64
	Feedback        string
	ObjectiveScores map[string]float64
}

// Outage is the error of a run that failed through what the program depends on, such as a model's provider. The optimizer
// evaluates the example again, and counts no failure of the candidate.
type Outage string

func (problem Outage) Error() string { return string(problem) }

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err == nil {
		err = json.Unmarshal(document, &contract)
	}
	if err != nil || token == "" {
		panic(fmt.Sprint("GEPA_TOKEN must be set, and PORT free: ", err))
	}
	fmt.Printf("{\"event\":\"ready\",\"url\":\"http://%s/rpc\"}\n", listener.Addr())
	panic(http.Serve(listener, http.HandlerFunc(serve)))
}

// failure is an error of the contract, with its HTTP status.
type failure struct {
	status, code int
	data         object
}

func insist(holds bool, status, code int, data object) {
	if !holds {
		panic(failure{status, code, data})
	}
}

func serve(w http.ResponseWriter, r *http.Request) {
	reply := object{"jsonrpc": "2.0", "id": nil}
	body, status := any(reply), 200
	defer func() {
		if problem := recover(); problem != nil {
			found, known := problem.(failure)
			if !known {
				found = failure{200, -32603, object{}}
			}
			status, found.data["retryable"] = found.status, false
			reply["error"] = object{"code": found.code, "message": messages[found.code], "data": found.data}
		}
		w.Header().Set("Content-Type", "application/json")
		if _, asked := reply["id"]; !asked { // a notification
			w.WriteHeader(204)
			return
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}()
	insist(ours.MatchString(r.Host) && r.Header.Get("Origin") == "", 403, -32021, object{"reason": "host or origin"})
	if r.URL.Path == "/health" {
		body = object{"status": "ok"}
		return
	}
	w.Header().Set("Allow", "POST")
	w.Header().Set("WWW-Authenticate", "Bearer")
	insist(r.URL.Path == "/rpc", 404, -32600, object{"reason": "the path must be /rpc"})
	insist(r.Method == "POST", 405, -32600, object{"reason": "the verb must be POST"})
	sent := strings.Join(r.Header.Values("Authorization"), ", ") // two headers match no token
	insist(subtle.ConstantTimeCompare([]byte(sent), []byte("Bearer "+token)) == 1, 401, -32021, object{"reason": "token"})
	insist(jsonType.MatchString(r.Header.Get("Content-Type")), 415, -32600, object{"reason": "the content type must be application/json"})
	encoding := r.Header.Get("Content-Encoding")
	insist(encoding == "" || encoding == "identity", 415, -32600, object{"reason": "the body must have no Content-Encoding"})
	insist(r.ContentLength <= maxBytes, 413, -32031, object{"limit": "max_request_bytes", "allowed": maxBytes})
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	insist(err == nil, 413, -32031, object{"limit": "max_request_bytes", "allowed": maxBytes})
	reply["result"] = answer(text, reply)
}

// answer is the result of a request; it puts the id of the request into the reply.
func answer(body []byte, reply object) object {
	var decoded any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	insist(utf8.Valid(body) && json.Valid(body) && decoder.Decode(&decoded) == nil, 400, -32700, object{"reason": "not JSON in UTF-8"})
	found := misfit(contract.Components.Schemas["Request"], decoded, "request")
	fields, _ := decoded.(object)
	_, positional := fields["params"].([]any)
	insist(found == "" || positional && found == "request.params", 400, -32600, object{"reason": "wrong or missing: " + found})
	reply["id"] = fields["id"]
	if _, asked := fields["id"]; !asked {
		delete(reply, "id")
	}
	if fields["params"] == nil {
		fields["params"] = object{}
	}
	params, _ := fields["params"].(object)
	meta, _ := params["_meta"].(object)
	named, _ := meta["protocol_version"].(string)
	insist(named == "" || named == "1", 200, -32020, object{"supported": []string{"1"}, "requested": named})
	method := fields["method"].(string)
	insist(shapes[method] != "", 200, -32601, object{"method": method})
	found = misfit(contract.Components.Schemas[shapes[method]], fields["params"], "params")
	insist(found == "", 200, -32602, wrongField(strings.Trim(strings.TrimPrefix(found, "params"), ". ")))
	if method == "evaluate" {
		return evaluate(body)
	}
	described := []object{}
	for _, component := range components {
		described = append(described, object{"name": component})
	}
	return object{
		"protocol_versions": []string{"1"},
		"server":            object{"name": "go", "version": "1", "language": "go", "instance_id": instance},
		"program":           object{"name": name, "version": version, "components": described, "seed_candidate": seed},
		"limits":            object{"max_concurrency": atOnce, "max_batch_size": maxBatch, "max_request_bytes": maxBytes},
	}
}

func wrongField(path string) object {
	return object{"errors": []object{{"path": path, "message": "missing, unknown or of the wrong kind"}}}
}

func evaluate(body []byte) object {
	var request struct {
		Params struct {
			Candidate map[string]string
			Batch     []struct {
				ID, Split string
				Data      json.RawMessage
			}
			Items         any
			CaptureTraces bool `json:"capture_traces"`
		}
	}
	_ = json.Unmarshal(body, &request) // it fits the schema
	params := request.Params
	insist(len(params.Batch) <= maxBatch, 200, -32031, object{"limit": "max_batch_size", "allowed": maxBatch, "given": len(params.Batch)})
	insist(params.Items == nil, 200, -32602, wrongField("items"))
	unknown, missing := without(params.Candidate, seed), without(seed, params.Candidate)
	insist(len(unknown)+len(missing) == 0, 200, -32022, object{"unknown": unknown, "missing": missing})
	split, ids := "", []string{}
	for _, example := range params.Batch {
		if example.Data == nil && (len(ids) == 0 || example.Split == split) {
			split, ids = example.Split, append(ids, example.ID)
		}
	}
	insist(len(ids) == 0, 200, -32023, object{"split": split, "ids": ids}) // this server holds no rows
	results, running := make([]json.RawMessage, len(params.Batch)), sync.WaitGroup{}
	for i, example := range params.Batch {
		running.Add(1)
		go func(i int, data json.RawMessage) {
			defer running.Done()
			slots <- true
			defer func() { <-slots }()
			results[i] = one(data, params.Candidate, params.CaptureTraces)
		}(i, example.Data)
	}
	running.Wait()
	return object{"results": results}
}

// without lists the components of a candidate that another one lacks.
func without(candidate, other map[string]string) []string {
	names := []string{}
	for name := range candidate {
		if _, there := other[name]; !there {
			names = append(names, name)
		}
	}
	return names
}

// one is the wire form of an example's result.
func one(data json.RawMessage, candidate map[string]string, traced bool) (encoded json.RawMessage) {
	began, trace, result := time.Now(), []any{}, object{}
	fail := func(kind string, message any) {
		problem := object{"type": kind, "message": fmt.Sprint(message)}
		result = object{"status": "program_error", "score": nil, "output": nil, "error": problem, "seconds": time.Since(began).Seconds()}
	}
	defer func() {
		if problem := recover(); problem != nil {
			fail("panic", problem)
		}
		if traced && len(trace) > 0 {
			result["trajectory"] = trace
		}
		var err error
		if encoded, err = json.Marshal(result); err != nil { // a score that is not finite, for example
			fail("invalid_result", err)
			encoded, _ = json.Marshal(result)
		}
	}()
	made, err := run(data, candidate, func(entry any) { trace = append(trace, entry) })
	if err != nil {
		fail(fmt.Sprintf("%T", err), err)
		if _, outage := err.(Outage); outage {
			result["status"] = "infra_error"
		}
		return
	}
	result = object{"status": "ok", "output": made.Output, "score": made.Score, "seconds": time.Since(began).Seconds()}
	if made.Feedback != "" {
		result["feedback"] = made.Feedback
	}
	if made.ObjectiveScores != nil {
		result["objective_scores"] = made.ObjectiveScores
	}
	return
}
