/**
 * A failed exchange. `code` is a code of the system (`ECONNREFUSED`), of TLS (`CERT_HAS_EXPIRED`) or of this client.
 */
export class HttpError extends Error {
  readonly code: string;
  /** A reused connection ended before the first byte of a response. The server may have closed it earlier. */
  readonly lostUsedConnection: boolean;
  /** The next attempt fails in the same way, until an operator changes a certificate or a setting. */
  readonly isLasting: boolean;
  /** The log shows no stack, because the failure is the server's or the network's. */
  readonly isExpected = true;

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

/** Returns the error for a response that violates HTTP. The rest of its connection cannot be trusted. */
export function malformed(what: string): HttpError {
  return new HttpError("MALFORMED_RESPONSE", `the response has ${what}`);
}

/** Returns the error for a connection that ended too early. Uses the system's error code if there is one. */
export function connectionLost(
  message: string,
  cause: unknown,
  lostUsedConnection = false,
): HttpError {
  const code = (cause as { code?: unknown } | null | undefined)?.code;
  const errorCode = typeof code === "string" ? code : "CONNECTION_CLOSED";
  return new HttpError(errorCode, message, { cause, lostUsedConnection });
}
