import { describe, expect, test } from "bun:test";
import type { Candidate, RoutePlan } from "../../src/inference/call/routing/plan-route.ts";
import type { ChatRequest } from "../../src/inference/endpoints/chat-completions/request.ts";
import { planFields } from "../../src/inference/endpoints/chat-completions/request-fields.ts";
import type { ModelPrices } from "../../src/lib/catalogue-model.ts";
import { testModel } from "../ledger/scripted-stream.ts";

function candidate(endpointId: string, apart: Partial<ModelPrices>): Candidate {
  const terms = { ...testModel, prices: { ...testModel.prices, ...apart } };
  const provider = { chat: () => Promise.reject(new Error("is not called")) };
  return {
    model: testModel,
    terms,
    providerId: "test",
    provider,
    upstreamModel: "m",
    baseEndpointId: endpointId,
    endpointId,
  };
}

const plain = candidate("plain", {});
const sound = candidate("sound", { audioInputTokenFemto: 5n });
const images = candidate("images", { imageInputTokenFemto: 5n });

const planned = (candidates: Candidate[], content: unknown, rest: object = {}): string[] => {
  const request = { messages: [{ role: "user", content, ...rest }] } as unknown as ChatRequest;
  const plan: RoutePlan = { models: [testModel], candidates };
  return planFields(request, plan).candidates.map(({ endpointId }) => endpointId);
};

const text = { type: "text", text: "hi" };
const all = [sound, images, plain];

describe("where sound or images cost something else than text, which no usage tells apart", () => {
  test.each([
    ["text", "hi", ["sound", "images", "plain"]],
    ["parts of text", [text, text], ["sound", "images", "plain"]],
    ["an image", [text, { type: "image_url", image_url: { url: "data:" } }], ["sound", "plain"]],
    ["sound", [text, { type: "input_audio", input_audio: {} }], ["images", "plain"]],
    ["a file, which may hold either", [{ type: "file", file: {} }], ["plain"]],
    ["a part of a type nobody knows", [{ type: "hologram" }], ["plain"]],
  ])("%s goes to those alone that meter it", (_what, content, expected) => {
    expect(planned(all, content)).toEqual(expected);
  });

  test("sound of an earlier answer counts likewise", () => {
    expect(planned(all, "hi", { audio: { id: "a" } })).toEqual(["images", "plain"]);
  });

  test("a request that none can meter is refused, and told where it is", () => {
    const content = [text, { type: "input_audio", input_audio: {} }];
    expect(() => planned([sound], content)).toThrow("messages.0.content.1");
  });
});
