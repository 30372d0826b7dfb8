import { createHash, generateKeyPairSync, type KeyObject, randomBytes, sign } from "node:crypto";

/** What an authenticator states in a response. */
export interface Stated {
  readonly origin: string;
  /** Default: the site of the options. */
  readonly rpId?: string;
  /** Default: one more than in the response before. */
  readonly counter?: number;
  readonly isUserVerified?: boolean;
  readonly userHandle?: string;
}

interface Options {
  readonly challenge: string;
  readonly rpId?: string;
  readonly rp?: { readonly id?: string };
  readonly user?: { readonly id: string };
}

const USER_PRESENT = 0x01;
const USER_VERIFIED = 0x04;
const CREDENTIAL_INCLUDED = 0x40;
const COORDINATE_BYTES = 32;

/** An authenticator in software with one passkey, an ES256 key without attestation. */
export class Authenticator {
  readonly id = randomBytes(16).toString("base64url");
  readonly #privateKey: KeyObject;
  readonly #publicKey: KeyObject;
  #counter = 0;
  #userHandle = "";

  constructor() {
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    this.#privateKey = privateKey;
    this.#publicKey = publicKey;
  }

  /** Creates the passkey. Returns the credential as browsers send it. */
  create(options: Options, stated: Stated) {
    this.#userHandle = options.user!.id;
    const id = Buffer.from(this.id, "base64url");
    const length = Buffer.from([0, id.length]);
    const attested = Buffer.concat([Buffer.alloc(16), length, id, this.#coseKey()]);
    const data = this.#data(options, stated, CREDENTIAL_INCLUDED);
    const authData = Buffer.concat([data, attested]);
    // CBOR: a map of fmt, attStmt and authData.
    const attestationObject = Buffer.concat([
      ...[Buffer.from([0xa3, 0x63]), Buffer.from("fmt"), Buffer.from([0x64]), Buffer.from("none")],
      ...[Buffer.from([0x67]), Buffer.from("attStmt"), Buffer.from([0xa0])],
      ...[Buffer.from([0x68]), Buffer.from("authData"), Buffer.from([0x58, authData.length])],
      authData,
    ]).toString("base64url");
    const clientDataJSON = clientData("webauthn.create", options, stated).toString("base64url");
    return this.#credential({ clientDataJSON, attestationObject, transports: ["internal"] });
  }

  /** Signs a challenge. Returns the credential as browsers send it. */
  sign(options: Options, stated: Stated) {
    const authData = this.#data(options, stated);
    const client = clientData("webauthn.get", options, stated);
    const signed = Buffer.concat([authData, createHash("sha256").update(client).digest()]);
    return this.#credential({
      clientDataJSON: client.toString("base64url"),
      authenticatorData: authData.toString("base64url"),
      signature: sign("sha256", signed, this.#privateKey).toString("base64url"),
      userHandle: stated.userHandle ?? this.#userHandle,
    });
  }

  #credential<Response>(response: Response) {
    const { id } = this;
    const extensions = { clientExtensionResults: {}, authenticatorAttachment: "platform" };
    return { id, rawId: id, type: "public-key", response, ...extensions };
  }

  #data({ rpId, rp }: Options, stated: Stated, flags = 0): Buffer {
    const site = stated.rpId ?? rpId ?? rp!.id!;
    this.#counter = stated.counter ?? this.#counter + 1;
    const verified = stated.isUserVerified === false ? 0 : USER_VERIFIED;
    const tail = Buffer.alloc(5);
    tail.writeUInt8(flags | USER_PRESENT | verified);
    tail.writeUInt32BE(this.#counter, 1);
    return Buffer.concat([createHash("sha256").update(site).digest(), tail]);
  }

  /** CBOR: a map of the type EC2, the algorithm ES256, the curve P-256, and the coordinates. */
  #coseKey(): Buffer {
    const { x, y } = this.#publicKey.export({ format: "jwk" });
    const head = Buffer.from([0xa5, 0x01, 0x02, 0x03, 0x26, 0x20, 0x01]);
    const coordinate = (label: number, value = "") =>
      Buffer.concat([
        Buffer.from([label, 0x58, COORDINATE_BYTES]),
        Buffer.from(value, "base64url"),
      ]);
    return Buffer.concat([head, coordinate(0x21, x), coordinate(0x22, y)]);
  }
}

function clientData(type: string, { challenge }: Options, { origin }: Stated): Buffer {
  return Buffer.from(JSON.stringify({ type, challenge, origin, crossOrigin: false }));
}
