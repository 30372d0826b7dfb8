import type {
  AuthenticationResponseJSON,
  PublicKeyCredentialCreationOptionsJSON,
  PublicKeyCredentialRequestOptionsJSON,
  RegistrationResponseJSON,
} from "@simplewebauthn/server";
import { authored } from "../../../db/authored.ts";
import { type Database, sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import {
  deletePasskey,
  findPasskey,
  insertPasskey,
  insertPasskeyChallenge,
  listPasskeys,
  notePasskeyUse,
  type Passkey,
  usePasskeyChallenge,
} from "../../../db/queries/passkeys.ts";
import {
  findPerson,
  noteSignIn,
  type Person,
  recordFailedSignIn,
} from "../../../db/queries/people.ts";
import type { Author, Origin } from "../../lib/author.ts";
import type { Clock } from "../../lib/clock.ts";
import { GatewayError } from "../../lib/errors.ts";
import { type Accounts, authorOfAttempt } from "./accounts.ts";

interface PasskeysDependencies {
  readonly sql: Database;
  readonly clock: Clock;
  readonly accounts: Accounts;
}

/** The relying party of WebAuthn: the site for which browsers create and offer passkeys. */
export interface RelyingParty {
  /** Host name of the dashboard. */
  readonly id: string;
  /** Origins of the dashboard, such as `https://gateway.example.com`. */
  readonly origins: readonly string[];
}

const RELYING_PARTY_NAME = "Model gateway";
/** Time from the request of a challenge to its signature. */
const CHALLENGE_MS = 300_000;
const CHALLENGE_BYTES = 32;
const MAX_PASSKEYS_OF_PERSON = 20;
/** Algorithms of COSE: EdDSA, ES256, RS256. Together all current authenticators have one of them. */
const ALGORITHMS = [-8, -7, -257];

/**
 * Passkeys of people. The authenticator verifies the user by a PIN or biometrics, so a passkey counts as both factors.
 * The browser offers the passkeys that it has, so a sign-in names no address before it succeeds.
 */
export class Passkeys {
  readonly #dependencies: PasskeysDependencies;

  constructor(dependencies: PasskeysDependencies) {
    this.#dependencies = dependencies;
  }

  list(personId: string): Promise<Passkey[]> {
    return listPasskeys(this.#dependencies.sql, personId);
  }

  /**
   * Returns the options with which a browser creates a passkey. Throws 400 if the person has a password and this is
   * another one, and 429 after too many attempts.
   */
  async creationOptions(
    personId: string,
    password: string | undefined,
    { id }: RelyingParty,
  ): Promise<PublicKeyCredentialCreationOptionsJSON> {
    const { sql, accounts } = this.#dependencies;
    const { email, name } = await accounts.confirmPassword(personId, password);
    const existing = await listPasskeys(sql, personId);
    const { generateRegistrationOptions } = await webAuthn();
    return generateRegistrationOptions({
      ...{ rpName: RELYING_PARTY_NAME, rpID: id, userName: email, userDisplayName: name },
      userID: new TextEncoder().encode(personId),
      challenge: await this.#newChallenge(personId),
      timeout: CHALLENGE_MS,
      excludeCredentials: existing.map((passkey) => ({
        ...{ id: passkey.id, transports: passkey.transports },
      })),
      authenticatorSelection: { residentKey: "required", userVerification: "required" },
      supportedAlgorithmIDs: ALGORITHMS,
    });
  }

  /**
   * Adds the passkey that a browser has created. Throws 400 if the response does not verify or its challenge was used
   * or has expired, 403 if the person has 20 passkeys, and 409 if the passkey was added before.
   */
  async add(
    personId: string,
    { name, response }: { readonly name: string; readonly response: RegistrationResponseJSON },
    party: RelyingParty,
    author: Author,
  ): Promise<void> {
    const { sql, clock } = this.#dependencies;
    const { clientDataJSON, transports = [] } = response.response;
    const expectedChallenge = await this.#useChallenge(clientDataJSON, personId);
    if (expectedChallenge === undefined) throw notAdded();
    const { verifyRegistrationResponse } = await webAuthn();
    const { registrationInfo } = await verifyRegistrationResponse({
      ...{ response, expectedChallenge, ...expectationsOf(party) },
      supportedAlgorithmIDs: ALGORITHMS,
    }).catch((error: unknown) => {
      throw notAdded(error);
    });
    if (registrationInfo === undefined) throw notAdded();
    const { credential, credentialBackedUp } = registrationInfo;
    const passkey = {
      ...{ id: credential.id, personId, name, publicKey: credential.publicKey },
      ...{ counter: credential.counter, transports },
      ...{ isBackedUp: credentialBackedUp, createdAtMs: clock.nowMs() },
    };
    let isInserted: boolean;
    try {
      isInserted = await insertPasskey(authored(sql, author), passkey, MAX_PASSKEYS_OF_PERSON);
    } catch (error) {
      if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
      const message = "This passkey was added before.";
      throw new GatewayError("name_taken", message, { param: "credential", cause: error });
    }
    if (isInserted) return;
    const message = `An account can have at most ${MAX_PASSKEYS_OF_PERSON} passkeys.`;
    throw new GatewayError("quota_exceeded", message);
  }

  /** Deletes a passkey of a person. Throws 404 if the person has no such passkey. */
  async delete(personId: string, id: string, author: Author): Promise<void> {
    if (await deletePasskey(authored(this.#dependencies.sql, author), personId, id)) return;
    throw new GatewayError("item_not_found", "Your account has no passkey with this id.");
  }

  /** Returns the options with which a browser signs in by any passkey that it has for this site. */
  async signInOptions({ id }: RelyingParty): Promise<PublicKeyCredentialRequestOptionsJSON> {
    const { generateAuthenticationOptions } = await webAuthn();
    return generateAuthenticationOptions({
      ...{ rpID: id, userVerification: "required", timeout: CHALLENGE_MS },
      challenge: await this.#newChallenge(null),
    });
  }

  /**
   * Returns the person whose passkey has signed the challenge. Throws 401 if the response does not verify, if its
   * challenge was used or has expired, or if the passkey is unknown. Throws 401 too if the counter of the
   * authenticator has not grown, because then there is a copy of it.
   */
  async verify(
    response: AuthenticationResponseJSON,
    party: RelyingParty,
    origin: Origin,
  ): Promise<Person> {
    const { sql, clock } = this.#dependencies;
    const passkey = await findPasskey(sql, response.id);
    const person = passkey && (await findPerson(sql, { id: passkey.personId }));
    const { clientDataJSON, userHandle = "" } = response.response;
    const expectedChallenge = await this.#useChallenge(clientDataJSON, null);
    if (passkey === undefined || person === undefined || expectedChallenge === undefined) {
      return this.#reject(person, origin);
    }
    const { verifyAuthenticationResponse } = await webAuthn();
    const verification = await verifyAuthenticationResponse({
      ...{ response, expectedChallenge, ...expectationsOf(party) },
      // The counter is compared below, after the signature and in one statement with its change.
      credential: { id: passkey.id, publicKey: Uint8Array.from(passkey.publicKey), counter: 0 },
    }).catch(() => undefined);
    const isHolder = Buffer.from(userHandle, "base64url").toString() === person.id;
    if (verification?.verified !== true || !isHolder) return this.#reject(person, origin);
    const { newCounter: counter, credentialBackedUp: isBackedUp } = verification.authenticationInfo;
    const use = { id: passkey.id, counter, isBackedUp };
    if (!(await notePasskeyUse(sql, use, clock.nowMs()))) {
      return this.#reject(person, origin, "passkey_counter");
    }
    await noteSignIn(sql, person.id, clock.nowMs());
    return person;
  }

  async #reject(person: Person | undefined, origin: Origin, reason?: string): Promise<never> {
    const id = person?.id ?? null;
    const author = authorOfAttempt(id, person?.email ?? "unknown passkey", origin);
    await recordFailedSignIn(authored(this.#dependencies.sql, author), id, reason);
    throw new GatewayError("invalid_credentials", "Signing in with this passkey failed.");
  }

  /** Returns the bytes of a new challenge. */
  async #newChallenge(personId: string | null): Promise<Uint8Array<ArrayBuffer>> {
    const { sql, clock } = this.#dependencies;
    const bytes = crypto.getRandomValues(new Uint8Array(CHALLENGE_BYTES));
    const challenge = Buffer.from(bytes).toString("base64url");
    const nowMs = clock.nowMs();
    const times = { nowMs, expiresAtMs: nowMs + CHALLENGE_MS };
    await insertPasskeyChallenge(sql, { challenge, personId }, times);
    return bytes;
  }

  /**
   * Uses up the challenge that a response states, and returns it. Returns undefined if the gateway issued none for this
   * purpose, or if it was used or has expired.
   */
  async #useChallenge(clientData: string, personId: string | null): Promise<string | undefined> {
    const { sql, clock } = this.#dependencies;
    const challenge = statedChallenge(clientData);
    const isUsed = await usePasskeyChallenge(sql, challenge, personId, clock.nowMs());
    return isUsed ? challenge : undefined;
  }
}

/** Returns the library, which takes 0.4 s and 22 MB to load. Few processes need it. */
const webAuthn = () => import("@simplewebauthn/server");

function expectationsOf({ id, origins }: RelyingParty) {
  return { expectedRPID: id, expectedOrigin: [...origins], requireUserVerification: true };
}

/** Returns the challenge in the client data of a response, or "" if they are malformed. */
function statedChallenge(clientData: string): string {
  try {
    const { challenge } = JSON.parse(Buffer.from(clientData, "base64url").toString());
    return typeof challenge === "string" ? challenge : "";
  } catch {
    return "";
  }
}

function notAdded(cause?: unknown): GatewayError {
  // Not 401, which would mean that the session has ended.
  const message = "The passkey could not be verified, or adding it took too long. Try again.";
  return new GatewayError("invalid_body", message, { param: "credential", cause });
}
