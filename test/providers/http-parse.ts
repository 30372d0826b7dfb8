import { Exchange } from "../../src/providers/transport/exchange.ts";
import type { ProviderResponse } from "../../src/providers/transport/provider-response.ts";
import { codeOf, requestOf } from "./http-raw-server.ts";

export interface Outcome {
  /** Status and body, or the code of the failure. */
  readonly result: string;
  readonly isReusable: boolean | undefined;
}

/** What an exchange makes of a response that comes in these pieces, and then ends. */
export async function parse(
  pieces: readonly Buffer[],
  as: "text" | "stream",
  method = "POST",
): Promise<Outcome> {
  const { promise, resolve, reject } = Promise.withResolvers<ProviderResponse>();
  const exchange = new Exchange("", requestOf({ method }), {
    responded: resolve,
    failed: reject,
  });
  let isReusable: boolean | undefined;
  exchange.carriedBy({
    pause: () => undefined,
    resume: () => undefined,
    destroy: () => undefined,
    finish: (reusable) => {
      isReusable = reusable;
    },
  });
  const read = promise.then(async (response) => {
    const text = as === "text" ? await response.text() : await new Response(response.body).text();
    return `${response.status} ${text}`;
  });
  const result = read.catch(codeOf);
  for (const piece of pieces) {
    // A connection hands on no bytes once its exchange has ended.
    if (!exchange.hasEnded) exchange.receive(Buffer.from(piece));
    if (as === "stream") await null;
  }
  exchange.connectionEnded(undefined);
  return { result: await result, isReusable };
}
