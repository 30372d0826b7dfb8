import { Type } from "typebox";
import { findPerson } from "../../db/queries/people.ts";
import type { Passkeys, RelyingParty } from "../accounts/people/passkeys.ts";
import { jsonResponse } from "../http/error-response.ts";
import { type RequestContext, type RouteDefinition, route } from "../http/route.ts";
import { isoTime } from "../lib/utc-time.ts";
import {
  type AccountRouteDependencies,
  body,
  countAttempt,
  DONE,
  name,
  ofSession,
  PREFIX,
  password,
  personOf,
  publicPage,
  STATE,
  unstored,
} from "./account-routes.ts";
import { relyingPartyOf } from "./browser.ts";

export interface PasskeyRouteDependencies extends AccountRouteDependencies {
  readonly passkeys: Passkeys;
}

const MAX_CREDENTIAL_CHARACTERS = 8_192;
/** Longest id of a credential: 1,023 bytes. */
const MAX_ID_CHARACTERS = 1_364;
const MAX_TRANSPORTS = 8;
const bytes = Type.String({ maxLength: MAX_CREDENTIAL_CHARACTERS, pattern: "^[A-Za-z0-9_-]*$" });
const id = Type.String({
  ...{ minLength: 1, maxLength: MAX_ID_CHARACTERS, pattern: "^[A-Za-z0-9_-]+$" },
});

/** PublicKeyCredential.toJSON of WebAuthn. Browsers add members that the gateway does not read. */
const credential = <Response extends Parameters<typeof Type.Object>[0]>(response: Response) =>
  Type.Object({
    ...{ id, rawId: id, type: Type.Literal("public-key") },
    clientExtensionResults: Type.Object({}),
    response: Type.Object({ clientDataJSON: bytes, ...response }),
  });
const createdCredential = credential({
  attestationObject: bytes,
  transports: Type.Optional(
    Type.Array(Type.String({ maxLength: 32 }), { maxItems: MAX_TRANSPORTS }),
  ),
});
const signedCredential = credential({
  ...{ authenticatorData: bytes, signature: bytes },
  userHandle: Type.Optional(bytes),
});

const OPTIONS = { description: "Options of WebAuthn, in its JSON form" };

/** Returns the routes by which people add passkeys to their account, and sign in with them. */
export function passkeyRoutes(dependencies: PasskeyRouteDependencies): RouteDefinition[] {
  return [...signInRoutes(dependencies), ...holderRoutes(dependencies)];
}

function signInRoutes(dependencies: PasskeyRouteDependencies): RouteDefinition[] {
  const { passkeys, sessions, begun } = dependencies;
  const partyOf = partyIn(dependencies);
  return [
    route({
      ...publicPage,
      method: "POST",
      path: `${PREFIX}/session/passkey/options`,
      summary: "Get the options to sign in with a passkey",
      responses: { 200: OPTIONS },
      async handle(context) {
        await countAttempt(dependencies, context);
        return unstored(jsonResponse(await passkeys.signInOptions(partyOf(context))));
      },
    }),
    route({
      ...publicPage,
      method: "POST",
      path: `${PREFIX}/session/passkey`,
      summary: "Sign in with a passkey",
      body: body({ credential: signedCredential }),
      responses: { 200: STATE },
      async handle(context) {
        await countAttempt(dependencies, context);
        const { credential: signed } = context.body;
        const person = await passkeys.verify(signed, partyOf(context), context.origin);
        return begun(context, await sessions.beginForPerson(person.id, context.origin));
      },
    }),
  ];
}

function holderRoutes(dependencies: PasskeyRouteDependencies): RouteDefinition[] {
  const { passkeys, sql } = dependencies;
  const partyOf = partyIn(dependencies);
  return [
    route({
      ...ofSession,
      method: "GET",
      path: `${PREFIX}/account/passkeys`,
      summary: "List the passkeys of the account",
      responses: { 200: { description: "The passkeys, oldest first" } },
      async handle(context) {
        const { id: personId } = personOf(context);
        const [person, list] = await Promise.all([
          findPerson(sql, { id: personId }),
          passkeys.list(personId),
        ]);
        const data = list.map((passkey) => ({
          ...{ id: passkey.id, name: passkey.name, is_backed_up: passkey.isBackedUp },
          created_at: isoTime(passkey.createdAtMs),
          last_used_at: passkey.lastUsedAtMs === null ? null : isoTime(passkey.lastUsedAtMs),
        }));
        return unstored(
          jsonResponse({ data, total: data.length, needs_password: person?.passwordHash !== null }),
        );
      },
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${PREFIX}/account/passkeys/options`,
      summary: "Get the options to create a passkey",
      description: "Requires the current password if the account has one.",
      body: body({ current_password: Type.Optional(password) }),
      responses: { 200: OPTIONS },
      async handle(context) {
        const { current_password: current } = context.body;
        const person = personOf(context);
        const options = await passkeys.creationOptions(person.id, current, partyOf(context));
        return unstored(jsonResponse(options));
      },
    }),
    route({
      ...ofSession,
      method: "POST",
      path: `${PREFIX}/account/passkeys`,
      summary: "Add a passkey to the account",
      body: body({ name, credential: createdCredential }),
      responses: { 200: DONE },
      async handle(context) {
        const { name: stated, credential: response } = context.body;
        const created = { name: stated, response };
        await passkeys.add(personOf(context).id, created, partyOf(context), context.author);
        return unstored(jsonResponse({ is_changed: true }));
      },
    }),
    route({
      ...ofSession,
      method: "DELETE",
      path: `${PREFIX}/account/passkeys/:id`,
      summary: "Delete a passkey of the account",
      responses: { 200: DONE },
      async handle(context) {
        await passkeys.delete(personOf(context).id, context.params.id, context.author);
        return unstored(jsonResponse({ is_changed: true }));
      },
    }),
  ];
}

/** Returns the function that finds the site of a request. */
function partyIn({ publicUrl }: PasskeyRouteDependencies) {
  return ({ request }: Pick<RequestContext, "request">): RelyingParty =>
    relyingPartyOf(request, publicUrl);
}
