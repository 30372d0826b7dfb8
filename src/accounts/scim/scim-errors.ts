import { type ClientWire, ERROR_TABLE } from "../../http/error-response.ts";

const SCHEMA = "urn:ietf:params:scim:api:messages:2.0:Error";

/** Returns the body of an error (RFC 7644, section 3.12). */
export function scimErrorBody(status: number, detail: string, scimType?: string | null): object {
  return {
    schemas: [SCHEMA],
    status: String(status),
    ...(scimType != null && scimType !== "" && { scimType }),
    detail,
  };
}

/** The errors that clients of SCIM expect. */
export const scimWire: ClientWire = {
  requestIdHeader: "x-request-id",
  errorOf: (error) => error,
  envelope: (error) => scimErrorBody(ERROR_TABLE[error.code].status, error.message),
};
