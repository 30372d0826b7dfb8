import { ApiError, call, startSession } from "./api.ts";

/** True if the browser reads and writes the JSON form of WebAuthn, as all current browsers do. */
export const canUsePasskeys =
  typeof PublicKeyCredential !== "undefined" &&
  "parseRequestOptionsFromJSON" in PublicKeyCredential;

/** Starts a session with a passkey that the person chooses. Throws ApiError if there is none, or if it is rejected. */
export async function signInWithPasskey(): Promise<void> {
  const path = "session/passkey/options";
  const options = await call<PublicKeyCredentialRequestOptionsJSON>("POST", path);
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
  const credential = await credentialFrom(navigator.credentials.get({ publicKey }));
  await startSession("session/passkey", { credential });
}

/**
 * Creates a passkey and adds it to the account. Throws ApiError if the password is wrong, or if the browser creates none.
 *
 * @param password the current password. Empty if the account has none
 */
export async function addPasskey(name: string, password: string): Promise<void> {
  const options = await call<PublicKeyCredentialCreationOptionsJSON>(
    "POST",
    "account/passkeys/options",
    { body: password === "" ? {} : { current_password: password } },
  );
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
  const credential = await credentialFrom(navigator.credentials.create({ publicKey }));
  await call("POST", "account/passkeys", { body: { name, credential } });
}

const REASONS: Readonly<Record<string, string>> = {
  NotAllowedError: "No passkey was chosen, or it took too long. Try again.",
  InvalidStateError: "This device has a passkey for your account already.",
  SecurityError: "The browser allows no passkeys at this address of the dashboard.",
};

/** Returns the JSON form of a credential for which the browser asks the person. */
async function credentialFrom(prompt: Promise<Credential | null>): Promise<unknown> {
  try {
    return ((await prompt) as PublicKeyCredential).toJSON();
  } catch (error) {
    const name = error instanceof DOMException ? error.name : "";
    throw new ApiError(0, "passkey_failed", REASONS[name] ?? String(error), null);
  }
}
