import { expect, test } from "bun:test";
import { ProviderCall, providerRequest } from "../../src/inference/call/call.ts";
import type { Candidate } from "../../src/inference/call/routing/plan-route.ts";

const candidateOf = (id: string) =>
  ({ model: { id }, upstreamModel: `${id}-upstream` }) as Candidate;

test("a provider request does not change when its call is directed to another candidate", () => {
  const call = new ProviderCall("request", false);
  call.aimAt(candidateOf("first"), { onNewConnection: false });
  const request = providerRequest(call, { stream: false });
  call.aimAt(candidateOf("second"), { onNewConnection: true });
  expect(request).toMatchObject({
    ...{ model: "first-upstream", modelId: "first", requestId: "request" },
    ...{ stream: false, onNewConnection: false },
  });
});

test("the fields of an endpoint replace those of the call", () => {
  const call = new ProviderCall("request", true);
  call.aimAt(candidateOf("first"), { onNewConnection: false });
  expect(providerRequest(call, { onNewConnection: true }).onNewConnection).toBe(true);
});
