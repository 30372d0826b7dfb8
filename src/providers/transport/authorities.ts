import { createSecureContext, getCACertificates } from "node:tls";

/**
 * The certificate authorities that connections trust, as Bun's sockets take them: read once, because
 * parsing some hundred certificates for each connection costs as much as its handshake.
 */
export class TrustedAuthorities {
  readonly #certificates: readonly string[] | undefined;
  #context: unknown;

  /** @param certificates in PEM, in place of those of the machine */
  constructor(certificates?: readonly string[]) {
    this.#certificates = certificates;
  }

  /** `secureContext` is no documented option of Bun's: without it all certificates would be refused. */
  get tlsOptions(): Bun.TLSOptions {
    this.#context ??= contextOf(this.#certificates ?? machineAuthorities());
    return { rejectUnauthorized: true, secureContext: this.#context } as Bun.TLSOptions;
  }
}

/** Bun's bundled authorities, those that NODE_EXTRA_CA_CERTS names, and those of the operating system. */
function machineAuthorities(): readonly string[] {
  const all = [...getCACertificates("default"), ...getCACertificates("system")];
  return [...new Set(all.map((certificate) => certificate.trim()))];
}

function contextOf(certificates: readonly string[]): unknown {
  return createSecureContext({ ca: [...certificates] }).context;
}
