// The program: here the conformance program, by which `evolverpc conformance` tests the server. Put your own in its place.
package main

import (
	"encoding/json"
	"math"
	"strings"
	"time"
)

const name = "conformance"

// The conformance program has a version. Yours has nil if its code is all that it depends on: the digest shows a change.
var version any = "1"

var components = []object{{"name": "system"}, {"name": "style"}}
var seed = map[string]string{"system": "seed system", "style": "seed style"}

// run answers an example, which is any JSON, with a candidate. An error, or a panic, is a failure of this example alone.
func run(example json.RawMessage, candidate map[string]string) (Result, error) {
	var wanted struct {
		SleepMS         float64 `json:"sleep_ms"`
		TraceBytes      int     `json:"trace_bytes"`
		Raise           string
		InfraError      Outage `json:"infra_error"`
		Output          json.RawMessage
		EchoCandidate   bool `json:"echo_candidate"`
		Score           json.RawMessage
		Feedback        string
		ObjectiveScores map[string]json.RawMessage `json:"objective_scores"`
	}
	if err := json.Unmarshal(example, &wanted); err != nil {
		return Result{}, err
	}
	time.Sleep(time.Duration(wanted.SleepMS * float64(time.Millisecond)))
	trajectory := object{"system": candidate["system"], "style": candidate["style"], "data": example, "pad": strings.Repeat("x", wanted.TraceBytes)}
	if wanted.Raise != "" {
		panic(wanted.Raise)
	}
	if wanted.InfraError != "" {
		return Result{Trajectory: trajectory}, wanted.InfraError
	}
	result := Result{Output: wanted.Output, Score: 1, Feedback: wanted.Feedback, Trajectory: trajectory}
	if wanted.EchoCandidate {
		result.Output = candidate
	}
	if wanted.Score != nil {
		result.Score = number(wanted.Score)
	}
	for name, score := range wanted.ObjectiveScores {
		if result.ObjectiveScores == nil {
			result.ObjectiveScores = map[string]float64{}
		}
		result.ObjectiveScores[name] = number(score)
	}
	return result, nil
}

// number is NaN, which the server refuses, if the value is no number.
func number(value json.RawMessage) float64 {
	var found any
	_ = json.Unmarshal(value, &found) // it is a part of what was read
	switch found := found.(type) {
	case float64:
		return found
	case bool:
		return map[bool]float64{true: 1}[found]
	}
	return math.NaN()
}
