/** Why an exchange failed: codes of the system (`ECONNREFUSED`), of TLS (`CERT_HAS_EXPIRED`), and of this client. */
export class HttpError extends Error {
  readonly code: string;
  /** A connection that had been used before ended without a byte of an answer: it may have died unnoticed. */
  readonly lostUsedConnection: boolean;
  /** Until an operator changes a certificate or a setting, the next try fails in the same way. */
  readonly isLasting: boolean;

  constructor(
    code: string,
    message: string,
    details: { cause?: unknown; lostUsedConnection?: boolean; isLasting?: boolean } = {},
  ) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = "HttpError";
    this.code = code;
    this.lostUsedConnection = details.lostUsedConnection ?? false;
    this.isLasting = details.isLasting ?? false;
  }
}

/** The server does not keep to HTTP, so that nothing more on its connection can be trusted. */
export function malformed(what: string): HttpError {
  return new HttpError("MALFORMED_RESPONSE", `the response has ${what}`);
}

/** A connection that ended too early, under the code of the system where it gave one. */
export function connectionLost(
  message: string,
  cause: unknown,
  lostUsedConnection = false,
): HttpError {
  const code = (cause as { code?: unknown } | null | undefined)?.code;
  const told = typeof code === "string" ? code : "CONNECTION_CLOSED";
  return new HttpError(told, message, { cause, lostUsedConnection });
}
