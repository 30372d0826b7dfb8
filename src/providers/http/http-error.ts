/** Why an exchange failed: codes of the system (`ECONNREFUSED`), and those of this client. */
export class HttpError extends Error {
  readonly code: string;

  constructor(code: string, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "HttpError";
    this.code = code;
  }
}

/** The server does not keep to HTTP, so that nothing more on its connection can be trusted. */
export function malformed(what: string): HttpError {
  return new HttpError("MALFORMED_RESPONSE", `the response has ${what}`);
}

/** A connection that ended too early, under the code of the system where it gave one. */
export function connectionLost(message: string, cause: unknown): HttpError {
  const code = (cause as { code?: unknown } | null | undefined)?.code;
  return new HttpError(typeof code === "string" ? code : "CONNECTION_CLOSED", message, cause);
}
