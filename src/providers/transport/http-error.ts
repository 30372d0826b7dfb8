/** Why an exchange failed: codes of the system (`ECONNREFUSED`), and those of this client. */
export class HttpError extends Error {
  readonly code: string;
  /** A connection that had been used before ended without a byte of an answer: it may have died unnoticed. */
  readonly lostUsedConnection: boolean;

  constructor(code: string, message: string, cause?: unknown, lostUsedConnection = false) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "HttpError";
    this.code = code;
    this.lostUsedConnection = lostUsedConnection;
  }
}

/** The server does not keep to HTTP, so that nothing more on its connection can be trusted. */
export function malformed(what: string): HttpError {
  return new HttpError("MALFORMED_RESPONSE", `the response has ${what}`);
}

/** A connection that ended too early, under the code of the system where it gave one. */
export function connectionLost(message: string, cause: unknown, wasUsed = false): HttpError {
  const code = (cause as { code?: unknown } | null | undefined)?.code;
  const told = typeof code === "string" ? code : "CONNECTION_CLOSED";
  return new HttpError(told, message, cause, wasUsed);
}
