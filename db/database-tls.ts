import { readFileSync } from "node:fs";

/** TLS options that the driver passes to `tls.connect`. False connects without TLS. */
export type DatabaseTls =
  | false
  | {
      /** Connect without TLS if the server does not offer it. */
      readonly isOptional?: boolean;
      readonly rejectUnauthorized: boolean;
      readonly ca?: string;
      readonly cert?: string;
      readonly key?: string;
      readonly passphrase?: string;
      readonly checkServerIdentity?: () => undefined;
    };

export const TLS_MODES = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

/** Parameters that the driver does not read and that a server would reject as unknown settings. */
const TLS_PARAMETERS = ["sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword"];

/** The TLS part of DATABASE_URL is invalid. The message completes "DATABASE_URL …". */
export class DatabaseTlsError extends Error {}

/**
 * Takes the TLS parameters out of the query of a database URL and reads the files that they name, with the meanings of
 * libpq (PostgreSQL documentation, 34.19.1). Two differ: without `sslmode` there is no TLS, or, if a certificate is
 * named, `verify-full`; and without `sslrootcert` the authorities of the system are trusted. Returns undefined if the
 * query has none of them. Throws DatabaseTlsError if a parameter is invalid or a file cannot be read.
 */
export function takeTls(parameters: URLSearchParams): DatabaseTls | undefined {
  const [mode, rootFile, certFile, keyFile, passphrase] = TLS_PARAMETERS.map((name) => {
    const value = parameters.get(name) ?? undefined;
    parameters.delete(name);
    return value;
  });
  if (mode === undefined && (rootFile ?? certFile ?? keyFile) === undefined) return undefined;
  if (mode !== undefined && !TLS_MODES.includes(mode)) {
    throw new DatabaseTlsError(`has sslmode=${mode}, but must have one of ${TLS_MODES.join(", ")}`);
  }
  if (mode === "disable") return false;
  if ((certFile === undefined) !== (keyFile === undefined)) {
    throw new DatabaseTlsError("has one of sslcert and sslkey, but must have both or neither");
  }
  const ca =
    rootFile === undefined || rootFile === "system" ? undefined : readPem("sslrootcert", rootFile);
  const cert = certFile === undefined ? undefined : readPem("sslcert", certFile);
  const key = keyFile === undefined ? undefined : readPem("sslkey", keyFile);
  return {
    ...trustOf(mode ?? "verify-full", rootFile),
    ...(ca !== undefined && { ca }),
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
    ...(passphrase !== undefined && { passphrase }),
  };
}

/** Returns the options that decide which server certificates are accepted. */
function trustOf(mode: string, rootFile: string | undefined) {
  if (mode === "verify-full" || rootFile === "system") return { rejectUnauthorized: true };
  // libpq verifies a named authority, too.
  if (mode === "verify-ca" || (mode === "require" && rootFile !== undefined)) {
    return { rejectUnauthorized: true, checkServerIdentity: () => undefined };
  }
  return mode === "require"
    ? { rejectUnauthorized: false }
    : { rejectUnauthorized: false, isOptional: true };
}

function readPem(name: string, path: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const { code } = error as { code?: string };
    throw new DatabaseTlsError(`names ${name}=${path}, which cannot be read (${code})`);
  }
  if (text.includes("-----BEGIN ")) return text;
  throw new DatabaseTlsError(`names ${name}=${path}, which holds no PEM`);
}
