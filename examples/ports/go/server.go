// A server of the evaluation protocol over HTTP, with the standard library. Your program is in program.go.
package main

import (
	"crypto/sha256"
	"crypto/subtle"
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

const maxBatch, maxBytes, atOnce = 1000, 64 << 20, 8

var (
	digest   string // of this program: another one after each change
	token    = os.Getenv("GEPA_TOKEN")
	slots    = make(chan bool, atOnce)
	server   = object{"name": "go", "version": "1", "language": "go", "instance_id": time.Now().Format(time.RFC3339Nano)}
	limits   = object{"max_concurrency": atOnce, "max_batch_size": maxBatch, "max_request_bytes": maxBytes}
	ours     = regexp.MustCompile(`^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$`)
	jsonType = regexp.MustCompile(`(?i)^application/json *(;|$)`)
	methods  = map[string]object{"discover": {"_meta": 0}, "evaluate": {"_meta": 0, "candidate": 0, "batch": 0, "capture_traces": 0}}
	messages = map[int]string{-32700: "Parse error", -32600: "Invalid Request", -32601: "Method not found", -32602: "Invalid params", -32603: "Internal error",
		-32020: "Version not supported", -32021: "Unauthorized", -32022: "Unknown candidate", -32023: "Unknown example", -32031: "Limit exceeded"}
)

// Result is what the program made of an example. The model that proposes better texts reads Feedback and Trajectory.
type Result struct {
	Output          any                `json:"output"`
	Score           float64            `json:"score"`
	Feedback        string             `json:"feedback,omitempty"`
	ObjectiveScores map[string]float64 `json:"objective_scores,omitempty"`
	Trajectory      any                `json:"trajectory,omitempty"`
	Status          string             `json:"status"`  // The server sets
	Seconds         float64            `json:"seconds"` // these two.
}

// Outage is the error of a run that failed through what the program depends on, such as a model's provider. The optimizer
// evaluates the example again, and counts no failure of the candidate.
type Outage string

func (problem Outage) Error() string { return string(problem) }

func main() {
	path, _ := os.Executable()
	code, unread := os.ReadFile(path)
	digest = fmt.Sprintf("%x", sha256.Sum256(code))
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil || unread != nil || token == "" {
		panic(fmt.Sprint("GEPA_TOKEN must be set, PORT free, and the program's file readable: ", err, unread))
	}
	fmt.Printf("{\"event\":\"ready\",\"url\":\"http://%s/rpc\"}\n", listener.Addr())
	panic(http.Serve(listener, http.HandlerFunc(serve)))
}

type object = map[string]any

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
	reply := object{"jsonrpc": "2.0", "id": json.RawMessage("null")}
	body, status := any(reply), 200
	defer func() {
		if problem := recover(); problem != nil {
			found, known := problem.(failure)
			if !known {
				found = failure{200, -32603, object{}}
			}
			status, found.data["retryable"] = found.status, !known
			reply["error"] = object{"code": found.code, "message": messages[found.code], "data": found.data}
		}
		w.Header().Set("Content-Type", "application/json")
		if len(reply["id"].(json.RawMessage)) == 0 { // a notification
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
	plain := jsonType.MatchString(r.Header.Get("Content-Type")) && strings.TrimPrefix(r.Header.Get("Content-Encoding"), "identity") == ""
	insist(plain, 415, -32600, object{"reason": "the body must be application/json, without a Content-Encoding"})
	insist(r.ContentLength <= maxBytes, 413, -32031, object{"limit": "max_request_bytes", "allowed": maxBytes})
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	insist(err == nil, 413, -32031, object{"limit": "max_request_bytes", "allowed": maxBytes})
	insist(utf8.Valid(text) && json.Valid(text), 400, -32700, object{"reason": "not JSON in UTF-8"})
	reply["result"] = answer(text, reply)
}

// fields are those of a JSON object, each as it was sent.
type fields map[string]json.RawMessage

// without lists the fields of an object, or the components of a candidate, that another one lacks.
func without[V, W any](all map[string]V, other map[string]W) []string {
	names := []string{}
	for name := range all {
		if _, there := other[name]; !there {
			names = append(names, name)
		}
	}
	return names
}

// read is the value of a field; it does not fit if it is missing, null or of another kind.
func read[T any](field json.RawMessage) (value T, fits bool) {
	fits = string(field) != "null" && json.Unmarshal(field, &value) == nil
	return
}

// need is a value of the params, which are refused if it does not fit.
func need[T any](field json.RawMessage, path string) T {
	value, fits := read[T](field)
	require(fits, path)
	return value
}

func require(holds bool, path string) {
	insist(holds, 200, -32602, object{"errors": []object{{"path": path, "message": "missing, unknown or of the wrong kind"}}})
}

// answer is the result of a request; it puts the id of the request into the reply.
func answer(body []byte, reply object) object {
	request, _ := read[fields](body)
	method, named := read[string](request["method"])
	sent, given := request["params"]
	id, asked := request["id"]
	number, isNumber := read[float64](id)
	_, isText := read[string](id)
	identified := !asked || string(id) == "null" || isText || isNumber && number == float64(int64(number)) && -1<<53 < number && number < 1<<53
	structured := !given || sent[0] == '{' || sent[0] == '['
	stray := without(request, object{"jsonrpc": 0, "method": 0, "params": 0, "id": 0})
	insist(string(request["jsonrpc"]) == `"2.0"` && named && identified && structured && len(stray) == 0, 400, -32600, object{"reason": "no request of JSON-RPC 2.0"})
	reply["id"] = id
	params, byName := read[fields](sent)
	meta, isObject := read[fields](params["_meta"])
	spoken, isVersion := read[string](meta["protocol_version"])
	insist(!isVersion || spoken == "1", 200, -32020, object{"supported": []string{"1"}, "requested": spoken})
	insist(methods[method] != nil, 200, -32601, object{"method": method})
	require(byName || !given, "")
	require(isObject || params["_meta"] == nil, "_meta")
	require(isVersion || meta["protocol_version"] == nil, "_meta.protocol_version")
	stray = without(params, methods[method])
	require(len(stray) == 0, strings.Join(stray, ", "))
	if method == "evaluate" {
		return evaluate(params)
	}
	program := object{"name": name, "version": version, "digest": digest, "components": components, "seed_candidate": seed}
	return object{"protocol_versions": []string{"1"}, "server": server, "program": program, "limits": limits}
}

func evaluate(params fields) object {
	candidate := map[string]string{}
	for name, text := range need[fields](params["candidate"], "candidate") {
		candidate[name] = need[string](text, "candidate."+name)
	}
	traced := params["capture_traces"] != nil && need[bool](params["capture_traces"], "capture_traces")
	rows, absent := []json.RawMessage{}, map[string][]string{}
	for i, sent := range need[[]json.RawMessage](params["batch"], "batch") {
		path := fmt.Sprintf("batch[%d]", i)
		example := need[fields](sent, path)
		stray := without(example, object{"id": 0, "data": 0, "split": 0})
		require(len(stray) == 0, path+"."+strings.Join(stray, ", "))
		id := need[string](example["id"], path+".id")
		require(id != "" && utf8.RuneCountInString(id) <= 256, path+".id")
		row, inline := example["data"]
		split, held := example["split"]
		require(inline != held, path)
		if held {
			name := need[string](split, path+".split")
			absent[name] = append(absent[name], id)
		}
		rows = append(rows, row)
	}
	insist(len(rows) <= maxBatch, 200, -32031, object{"limit": "max_batch_size", "allowed": maxBatch, "given": len(rows)})
	unknown, missing := without(candidate, seed), without(seed, candidate)
	insist(len(unknown)+len(missing) == 0, 200, -32022, object{"unknown": unknown, "missing": missing})
	for split, ids := range absent { // this server holds no rows
		panic(failure{200, -32023, object{"split": split, "ids": ids}})
	}
	results, running := make([]json.RawMessage, len(rows)), sync.WaitGroup{}
	for i, row := range rows {
		running.Add(1)
		go func(i int, row json.RawMessage) {
			defer running.Done()
			slots <- true
			defer func() { <-slots }()
			results[i] = one(row, candidate, traced)
		}(i, row)
	}
	running.Wait()
	return object{"results": results}
}

// one is the wire form of an example's result.
func one(row json.RawMessage, candidate map[string]string, traced bool) (encoded json.RawMessage) {
	began := time.Now()
	failed := func(kind string, problem, trajectory any) object {
		status, found := "program_error", object{"type": kind, "message": fmt.Sprint(problem)}
		if _, outage := problem.(Outage); outage {
			status = "infra_error"
		}
		return object{"status": status, "score": nil, "output": nil, "error": found, "trajectory": trajectory, "seconds": time.Since(began).Seconds()}
	}
	defer func() {
		if problem := recover(); problem != nil {
			encoded, _ = json.Marshal(failed("panic", problem, nil))
		}
	}()
	result, err := run(row, candidate)
	if result.Status, result.Seconds = "ok", time.Since(began).Seconds(); !traced {
		result.Trajectory = nil
	}
	var made any = result
	if err != nil {
		made = failed(fmt.Sprintf("%T", err), err, result.Trajectory)
	}
	if encoded, err = json.Marshal(made); err != nil { // a score that is not finite, for example
		encoded, _ = json.Marshal(failed("invalid_result", err, nil))
	}
	return
}
