// The program: here the conformance program, by which `evolverpc conformance` tests the server. Put your own in its place.
package main

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
)

const name, version = "conformance", "1"

var components = []string{"system", "style"}
var seed = map[string]string{"system": "seed system", "style": "seed style"}

// Result is what the program made of an example. The model that proposes better texts reads Feedback.
type Result struct {
	Output          any
	Score           float64
	Feedback        string
	ObjectiveScores map[string]float64
}

// run answers an example, which is any JSON, with a candidate. What it gives to trace is shown to the model that proposes
// better texts. An error, or a panic, is a failure of this example alone.
func run(example json.RawMessage, candidate map[string]string, trace func(any)) (Result, error) {
	var wanted struct {
		SleepMS         float64 `json:"sleep_ms"`
		TraceBytes      int     `json:"trace_bytes"`
		Raise           string
		Output          json.RawMessage
		EchoCandidate   bool `json:"echo_candidate"`
		Score           json.RawMessage
		Feedback        string
		ObjectiveScores map[string]float64 `json:"objective_scores"`
	}
	if err := json.Unmarshal(example, &wanted); err != nil {
		return Result{}, err
	}
	time.Sleep(time.Duration(wanted.SleepMS * float64(time.Millisecond)))
	trace(object{"system": candidate["system"], "style": candidate["style"], "data": example, "pad": strings.Repeat("x", wanted.TraceBytes)})
	if wanted.Raise != "" {
		return Result{}, errors.New(wanted.Raise)
	}
	result := Result{wanted.Output, 1, wanted.Feedback, wanted.ObjectiveScores}
	if wanted.EchoCandidate {
		result.Output = candidate
	}
	if wanted.Score != nil && (string(wanted.Score) == "null" || json.Unmarshal(wanted.Score, &result.Score) != nil) {
		result.Score = math.NaN() // which the server refuses
	}
	return result, nil
}
