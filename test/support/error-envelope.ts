import { expect } from "bun:test";

export interface Envelope {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
    /** Only of budget_exhausted. */
    readonly subject?: { readonly type: string; readonly id: string };
  };
  readonly request_id: string;
}

/** Reads an error of any kind and checks its envelope and its request id. */
export async function readEnvelope(response: Response): Promise<Envelope> {
  expect(response.status).toBeGreaterThanOrEqual(400);
  expect(response.headers.get("content-type")).toMatch(/^application\/json\b/);
  const body = (await response.json()) as Envelope;
  expectEnvelope(body);
  expect(body.request_id).toBe(response.headers.get("x-gateway-request-id")!);
  expect(body.request_id).toBe(response.headers.get("x-request-id")!);
  return body;
}

/** The envelope's own form, as an error frame of a stream has it too. */
export function expectEnvelope(body: unknown): void {
  expect(Object.keys(body as object).sort()).toEqual(["error", "request_id"]);
  const { error, request_id: requestId } = body as Envelope;
  const { subject, ...members } = error;
  expect(Object.keys(members).sort()).toEqual(["code", "message", "param", "type"]);
  expect(error.message).toMatch(/\S/);
  expect(error.type).toMatch(/^[a-z_]+$/);
  expect(error.code).toMatch(/^[a-z_]+$/);
  if (error.param !== null) expect(error.param).toBeString();
  const hasSubject = error.code === "budget_exhausted";
  expect(subject).toEqual(
    hasSubject ? { type: expect.any(String), id: expect.stringMatching(/./) } : undefined,
  );
  expect(requestId).toMatch(/^req_[0-9a-f]{32}$/);
}

/** An error of this status and code; returns its envelope. */
export async function expectError(
  response: Response,
  status: number,
  code: string,
): Promise<Envelope> {
  const body = await readEnvelope(response);
  expect({ status: response.status, code: body.error.code, message: body.error.message }).toEqual({
    status,
    code,
    message: expect.any(String),
  });
  return body;
}
