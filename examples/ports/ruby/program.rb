# The program: here the conformance program, by which `evolverpc conformance` tests the loop. Put your own in its place.
require_relative "stdio"

module Conformance
  def self.name = "conformance"

  def self.seed_candidate = { system: "seed system", style: "seed style" }

  def self.run(data, candidate)
    sleep(data.fetch("sleep_ms", 0) / 1000.0)
    $stderr.write(data["print"]) if data["print"]
    raise Outage, data["infra_error"] if data["infra_error"]
    raise data["raise"] if data["raise"]

    {
      output: data["echo_candidate"] ? candidate : data["output"],
      score: number(data.fetch("score", 1)),
      feedback: data["feedback"],
      objective_scores: data["objective_scores"]&.transform_values { |score| number(score) },
      trajectory: { **candidate, data: data, pad: "x" * data.fetch("trace_bytes", 0) },
    }.compact
  end

  # JSON has no NaN and no infinity: the cases write them as text.
  def self.number(score)
    { "NaN" => Float::NAN, "Infinity" => Float::INFINITY }.fetch(score, score)
  end
end

# Remove both facts for a program of your own, unless it always gives an example the same result (`deterministic`), or
# depends on what its files do not show (`version`, which you then change with it).
serve(Conformance, version: "1", deterministic: true) if __FILE__ == $PROGRAM_NAME
