import { effect, signal } from "@preact/signals";
import { PLAYGROUND_ROLES } from "../../../lib/roles.ts";
import { ApiError, call, errorOf, session } from "../api.ts";
import { memberRole } from "../rights.ts";
import { gatewayUrl } from "../router.ts";

/*
 * The key with which the playground calls models: that of the session, which the gateway makes with the first message,
 * or another one that the viewer pastes. Secrets are in variables only: in no signal, no element and no storage.
 */

interface SessionKey {
  readonly key: string;
  readonly name: string;
  readonly team_id: string | null;
  readonly expires_at: string;
}

/** Name of the key that the viewer has pasted. Undefined: the key of the session. */
export const pastedName = signal<string>();
/** The team of the session's key. Empty: the first one of the person. */
export const teamId = signal("");
let pasted = "";
let ofSession: (SessionKey & { readonly wantedTeam: string }) | undefined;
let renewal: Promise<string> | undefined;

/** Time before its expiry at which a key is renewed, in milliseconds. */
const MARGIN_MS = 60_000;

// The next session can be of another person.
effect(() => {
  void session.value;
  forgetPasted();
  ofSession = undefined;
  renewal = undefined;
  teamId.value = "";
});

/** Returns true if the gateway makes a key for the session. For sessions of keys, the scopes of the key decide. */
export function hasSessionKey(): boolean {
  const role = memberRole();
  return role === undefined || PLAYGROUND_ROLES.includes(role);
}

export function forgetPasted(): void {
  pasted = "";
  pastedName.value = undefined;
}

/** Characters of a key that a header can carry. */
const KEY = /^[\x21-\x7e]{1,256}$/;
const MANAGEMENT_PREFIX = "gateway_mgmt_";

/** Uses a pasted key if it can call models. Throws ApiError if it cannot. */
export async function pasteKey(text: string): Promise<void> {
  if (!KEY.test(text)) throw new ApiError(0, "invalid_api_key", "This is not a valid key.", null);
  const sessionAtStart = session.value;
  const response = await withKey("v1/key", text).catch(() => {
    throw new ApiError(0, "unreachable", "The gateway cannot be reached.", null);
  });
  if (!response.ok) throw await errorOf(response);
  const { name, key_prefix: prefix } = (await response.json()) as Record<string, string>;
  if (prefix?.startsWith(MANAGEMENT_PREFIX)) {
    const message = "A management key cannot call models. Enter a secret key (gateway_sk_…).";
    throw new ApiError(403, "wrong_key_kind", message, null);
  }
  // A new session must not get a key that was typed in the previous one.
  if (session.value !== sessionAtStart) return;
  pasted = text;
  pastedName.value = name;
}

/** Calls a model with the key in use. Renews the key of the session if it has ended. */
export async function callModel(
  path: string,
  body: object,
  signal: AbortSignal,
): Promise<Response> {
  const secret = await currentSecret();
  const response = await withKey(path, secret, { body, signal });
  // Another tab of the session has got a key, which ended this one.
  if (response.status !== 401 || pasted !== "") return response;
  return withKey(path, await currentSecret(secret), { body, signal });
}

/** @param rejected a secret that has ended */
async function currentSecret(rejected?: string): Promise<string> {
  if (pasted !== "") return pasted;
  const isCurrent =
    ofSession !== undefined &&
    ofSession.key !== rejected &&
    ofSession.wantedTeam === teamId.value &&
    Date.parse(ofSession.expires_at) - Date.now() > MARGIN_MS;
  if (isCurrent) return ofSession!.key;
  // Four models get one key.
  renewal ??= renew().finally(() => {
    renewal = undefined;
  });
  return renewal;
}

async function renew(): Promise<string> {
  const sessionAtStart = session.value;
  const wantedTeam = teamId.value;
  const body = wantedTeam === "" ? {} : { team_id: wantedTeam };
  const key = await call<SessionKey>("POST", "playground/key", { body });
  if (session.value === sessionAtStart) ofSession = { ...key, wantedTeam };
  return key.key;
}

interface KeyedCall {
  readonly body?: object;
  readonly signal?: AbortSignal;
}

/** Calls the API with a key and without the session's cookie, like a program. */
function withKey(path: string, secret: string, { body, signal }: KeyedCall = {}) {
  return fetch(new URL(path, gatewayUrl), {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    credentials: "omit",
    cache: "no-store",
    signal,
  });
}
