/** What the modelled server answers in place of rows; `code` as the driver tells it. */
export class ModelledError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = "ModelledError";
    this.code = code;
  }
}

export const UNIQUE_VIOLATION = "23505";
export const CHECK_VIOLATION = "23514";
export const NOT_NULL_VIOLATION = "23502";
export const DEADLOCK = "40P01";
export const LOCK_TIMEOUT = "55P03";
export const FENCED = "GW001";
export const BEYOND_HOLD = "GW002";
export const DISK_FULL = "53100";
export const STARTING_UP = "57P03";
export const ABORTED_TRANSACTION = "25P02";
export const CONNECTION_CLOSED = "CONNECTION_CLOSED";
export const CONNECTION_REFUSED = "ECONNREFUSED";
