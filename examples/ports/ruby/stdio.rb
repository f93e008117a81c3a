# The loop: one request a line on standard input, one answer a line on standard output. Nothing here knows the program.
require "json"

# A host that the program calls was away, overloaded or cut its answer off: the example runs again, and gets no score.
class Outage < StandardError; end

class InvalidResult < StandardError; end

# Answer requests until the input ends, or SIGTERM comes. `program` has `name`, `seed_candidate` and
# `run(data, candidate)`, which returns the fields of a result: `score`, `output` and, if any, `feedback`,
# `objective_scores` and `trajectory`. `facts`: further fields of the program in `discover`, such as its `version`.
def serve(program, **facts)
  answers = $stdout.dup
  $stdout.reopen($stderr) # what the program prints is log text
  answers.sync = $stderr.sync = true
  trap("TERM") { exit }
  $stdin.each_line do |line|
    request = JSON.parse(line, max_nesting: false)
    answer = answer_to(request, program, facts)
    answers.write(JSON.generate({ jsonrpc: "2.0", id: request["id"], **answer }, max_nesting: false) + "\n")
  end
end

def answer_to(request, program, facts)
  params = request["params"]
  case request["method"]
  when "discover"
    { result: { program: { name: program.name, seed_candidate: program.seed_candidate, **facts } } }
  when "evaluate"
    { result: { results: params["batch"].map { |example| result_of(example["data"], params, program) } } }
  else
    { error: { code: -32601, message: "Method not found", data: { method: request["method"] } } }
  end
end

# An exception is a failure of this example alone.
def result_of(data, params, program)
  result = { status: "ok", output: nil, **program.run(data, params["candidate"]).compact }
  result[:score] = finite(result[:score])
  result[:objective_scores] &&= result[:objective_scores].transform_values { |score| finite(score) }
  result.delete(:trajectory) unless params["capture_traces"]
  JSON.generate(result, max_nesting: 200) # raises for what JSON cannot hold
  result
rescue StandardError, NotImplementedError, SystemStackError => e
  type = e.is_a?(InvalidResult) ? "invalid_result" : e.class.name
  error = { type: type, message: e.message.scrub, traceback: e.full_message(highlight: false).scrub }
  { status: e.is_a?(Outage) ? "infra_error" : "program_error", output: nil, error: error }
end

def finite(score)
  score = { true => 1, false => 0 }.fetch(score, score)
  return score if score.is_a?(Numeric) && score.finite?

  raise InvalidResult, "a score is #{score.inspect}, which is no finite number"
end
