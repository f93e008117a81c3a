// The keywords of JSON Schema that the contract uses for `discover` and `evaluate`.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// misfit is the path of a value that does not fit a schema, such as `.batch[0].id`; "" if all fits.
func misfit(shape object, value any, path string) string {
	if name, ok := shape["$ref"].(string); ok {
		shape = contract.Components.Schemas[strings.TrimPrefix(name, "#/components/schemas/")]
	}
	kind, typed := shape["type"].(string)
	constant, fixed := shape["const"]
	if typed && !isOf(kind, value) || fixed && value != constant || !isWithin(shape, value) {
		return path
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		fitting, deepest := 0, path
		for _, choice := range list(shape[key]) {
			if found := misfit(choice.(object), value, path); found == "" {
				fitting++
			} else if len(found) > len(deepest) {
				deepest = found
			}
		}
		if shape[key] != nil && (fitting == 0 || key == "oneOf" && fitting > 1) {
			return deepest
		}
	}
	if items, ok := shape["items"].(object); ok {
		for i, item := range list(value) {
			if found := misfit(items, item, fmt.Sprintf("%s[%d]", path, i)); found != "" {
				return found
			}
		}
	}
	fields, _ := value.(object)
	properties, closed := shape["properties"].(object)
	for _, name := range list(shape["required"]) {
		if _, there := fields[name.(string)]; !there && closed {
			return path + "." + name.(string)
		} else if !there { // a choice between fields: the object as a whole does not fit
			return path + " "
		}
	}
	for name, field := range fields {
		inner, known := properties[name].(object)
		if others, ok := shape["additionalProperties"].(object); ok && !known {
			inner, known = others, true
		}
		if !known && shape["additionalProperties"] == false {
			return path + "." + name
		} else if found := misfit(inner, field, path+"."+name); found != "" {
			return found
		}
	}
	return ""
}

func isOf(kind string, value any) bool {
	switch value := value.(type) {
	case string:
		return kind == "string"
	case bool:
		return kind == "boolean"
	case []any:
		return kind == "array"
	case object:
		return kind == "object"
	case json.Number:
		number, err := value.Float64()
		return err == nil && (kind == "number" || kind == "integer" && number == math.Trunc(number))
	}
	return kind == "null"
}

// isWithin compares the length of a text, or a number, with the bounds of a schema.
func isWithin(shape object, value any) bool {
	size, low, high := 0.0, "minimum", "maximum"
	switch value := value.(type) {
	case string:
		size, low, high = float64(utf8.RuneCountInString(value)), "minLength", "maxLength"
	case json.Number:
		size, _ = value.Float64()
	default:
		return true
	}
	least, isLeast := shape[low].(float64)
	most, isMost := shape[high].(float64)
	above, isAbove := shape["exclusiveMinimum"].(float64)
	return !(isLeast && size < least || isMost && size > most || isAbove && size <= above)
}

func list(value any) []any {
	items, _ := value.([]any)
	return items
}
