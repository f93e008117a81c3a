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

// run answers an example, which is any JSON, with a candidate. What it gives to trace is shown to the model that proposes
// better texts. An error, or a panic, is a failure of this example alone.
func run(example json.RawMessage, candidate map[string]string, trace func(any)) (Result, error) {
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
	trace(object{"system": candidate["system"], "style": candidate["style"], "data": example, "pad": strings.Repeat("x", wanted.TraceBytes)})
	if wanted.Raise != "" {
		return Result{}, errors.New(wanted.Raise)
	}
	if wanted.InfraError != "" {
		return Result{}, wanted.InfraError
	}
	result := Result{Output: wanted.Output, Score: 1, Feedback: wanted.Feedback}
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
