import { expect, it } from "vitest";
import { Image } from "../src/program/images.js";
import { handler } from "../src/server/handler.js";
import { answerOf, programOf } from "./support.js";

const token = "secret";
const candidate = { rules: "" };

const reflect = { candidate, eval_batch: { batch: [], results: [] }, components_to_update: ["rules"] };

it("sends each image of the records once, and restores it for a program that proposes", async () => {
  const plot = new Image(Uint8Array.of(1, 2, 3), "image/png");
  let proposedFrom: any;
  const program = programOf({
    makeReflectiveDataset: () => ({ rules: [{ Plot: plot, Nested: [{ Again: plot }], Feedback: "dark" }] }),
    proposeNewTexts: (_, dataset) => {
      proposedFrom = dataset;
      return { rules: "lighter" };
    },
  });
  const handle = handler(program, { token });
  expect((await answerOf(handle, "discover", {})).result.capabilities).toContain("images");
  const { result } = await answerOf(handle, "make_reflective_dataset", reflect);
  const reference = { $image: "image-1" };
  expect(result).toEqual({
    dataset: { rules: [{ Plot: reference, Nested: [{ Again: reference }], Feedback: "dark" }] },
    images: { "image-1": { media_type: "image/png", base64: "AQID" } },
  });
  const params = { candidate, reflective_dataset: result.dataset, components_to_update: ["rules"] };
  await answerOf(handle, "propose_new_texts", { ...params, images: result.images });
  expect(proposedFrom.rules[0].Plot).toEqual(plot);
  expect(proposedFrom.rules[0].Nested[0].Again).toBeInstanceOf(Image);
});

it("names the place of an image that is too large", async () => {
  const large = new Image("A".repeat(7_000_000), "image/png");
  const program = programOf({ makeReflectiveDataset: () => ({ rules: [{ Plot: large }] }) });
  const { error } = await answerOf(handler(program, { token }), "make_reflective_dataset", reflect);
  expect(error.code).toBe(-32025);
  expect(error.message).toContain("dataset.rules[0].Plot is an image of more than 5242880 bytes");
});
