import type { BatchInterface, BatchRequest, RecordedAnswer, RecordedRequest } from "./batches.ts";
import type { Provider } from "./interface.ts";
import type { HttpClient, ProviderResponse } from "./transport/provider-response.ts";

/** Allowance for the envelope of a request in a batch: its id, its URL and the names of members. */
const ENVELOPE_BYTES = 256;

/** Creates a provider that sends its calls with the given client. */
export type MakeProvider = (httpClient: HttpClient) => Provider;

/** Returns the request that a call would send, or undefined if batches cannot contain it. */
export async function recordedRequest(
  make: MakeProvider,
  batches: Pick<BatchInterface, "groupOf">,
  call: (provider: Provider) => Promise<unknown>,
): Promise<BatchRequest | undefined> {
  const recorder = new Recorder();
  try {
    await call(make(recorder));
  } catch (error) {
    if (recorder.request === undefined) throw error;
  }
  const { request } = recorder;
  const grouping = request === undefined ? undefined : batches.groupOf(request);
  if (request === undefined || grouping === undefined) return undefined;
  return { ...grouping, body: request.body, bytes: bytesOf(request.body) + ENVELOPE_BYTES };
}

function bytesOf(body: string | Uint8Array): number {
  return typeof body === "string" ? Buffer.byteLength(body) : body.byteLength;
}

/** Records the first request instead of sending it, and fails every request. */
class Recorder implements HttpClient {
  request: RecordedRequest | undefined;

  send(...[url, { headers, body }, receiver]: Parameters<HttpClient["send"]>): void {
    // Files are sent as streams, which batches do not accept.
    if (body instanceof ReadableStream) body.cancel().catch(() => undefined);
    else this.request ??= { url, headers, body };
    receiver.failed(new Error("the request was recorded and not sent"));
  }
}

/** Returns a client that answers every request with the recorded response. */
export function answeringClient({ status, body }: RecordedAnswer): HttpClient {
  return {
    send(_url, { body: requestBody }, receiver) {
      if (requestBody instanceof ReadableStream) requestBody.cancel().catch(() => undefined);
      receiver.responded(responseOf(status, body));
    },
  };
}

function responseOf(status: number, bytes: Uint8Array): ProviderResponse {
  const headers: Readonly<Record<string, string>> = {
    "content-type": "application/json",
    "content-length": String(bytes.byteLength),
  };
  const text = () => new TextDecoder().decode(bytes);
  return {
    status,
    headers: { get: (name) => headers[name] ?? null },
    get body() {
      return new Blob([bytes as Uint8Array<ArrayBuffer>]).stream() as ReadableStream<Uint8Array>;
    },
    text: async () => text(),
    wholeText: (maxBytes) => (bytes.byteLength <= maxBytes ? text() : undefined),
  };
}
