// What `propose` may return.
import { expect, expectTypeOf, it } from "vitest";
import { type OptimizeOptions, programOf as servedProgramOf } from "../src/optimize/optimize-options.js";
import { call, programOf, served } from "./support.js";

it("new texts may be those of some components alone, and undefined stands for none", async () => {
  const propose = (_: object, records: object) => {
    if (Object.keys(records).length === 0) return {};
    return { route: "Route." };
  };
  type Propose = NonNullable<OptimizeOptions<unknown, unknown, "topic" | "route">["propose"]>;
  expectTypeOf(propose).toExtend<Propose>();
  expectTypeOf(() => ({ rout: "Route." }) as const).not.toExtend<Propose>();

  const seedCandidate = { topic: "Name it.", route: "Answer." };
  const program = programOf({
    seedCandidate,
    proposeNewTexts: () => ({ topic: undefined, route: "Route." }) as object,
  });
  const answer = await call(await served(program), "propose_new_texts", {
    candidate: seedCandidate,
    reflective_dataset: { topic: [], route: [] },
    components_to_update: ["topic", "route"],
  });
  expect(answer.result.texts).toEqual({ route: "Route." });
});

it("the functions of a class keep their `this`", () => {
  class Ending {
    name = "ending";
    seedCandidate = { rules: "" };
    mark = "!";
    run(row: string) {
      return row + this.mark;
    }
  }
  const { run } = servedProgramOf({ program: new Ending() } as never) as any;
  expect(run("so", {})).toBe("so!");
});
