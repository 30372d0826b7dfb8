import { type ApiKeyRecord, holdsScope, isLimited, type KeyKind } from "../lib/api-key-record.ts";
import { type Author, SUBJECT_PREFIX } from "../lib/author.ts";
import { GatewayError } from "../lib/errors.ts";
import { mayCall, ROLE_RIGHTS, type Role } from "../lib/roles.ts";
import { isOpenToDevelopers } from "./limited-keys.ts";
import type {
  KeyAccess,
  OperatorIdentity,
  RouteDefinition,
  SessionAccess,
  SessionPerson,
} from "./route.ts";

/** The current state of the key with which a dashboard session was started. */
export type SessionCaller =
  | {
      readonly kind: "organization";
      readonly key: ApiKeyRecord;
      readonly person?: SessionPerson | undefined;
      /** The operator who views the organization, with the reads of the role viewer. Undefined in other sessions. */
      readonly viewedBy?: OperatorIdentity | undefined;
    }
  | {
      readonly kind: "operator";
      readonly operator: OperatorIdentity;
      readonly person?: SessionPerson | undefined;
    };

const AUTHORS = {
  secret: "secret_key",
  management: "management_key",
  scim: "scim_token",
} as const satisfies Record<KeyKind, Author["kind"]>;

/** Returns how the audit log names the holder of a key. */
export function identityOf(
  holder: ApiKeyRecord | OperatorIdentity,
  person?: SessionPerson,
): Pick<Author, "kind" | "id" | "name" | "is_operator"> {
  const { id, name } = holder;
  const isOperator = !("kind" in holder);
  if (person !== undefined) {
    const { id: personId, email } = person;
    return { kind: "person", id: personId, name: email, ...(isOperator && { is_operator: true }) };
  }
  if (id.startsWith(SUBJECT_PREFIX)) {
    return { kind: "subject", id, name, ...(isOperator && { is_operator: true }) };
  }
  if (isOperator) return { kind: "operator", id, name };
  return { kind: AUTHORS[holder.kind], id, name };
}

/** Returns true if calls of the route are counted as administrative ones. */
export function isAdministrative({ kind }: KeyAccess): boolean {
  return kind === "administration" || kind === "scim";
}

export function keyAccessOf(access: RouteDefinition["access"]): KeyAccess {
  return access.kind === "session" ? access.of : access;
}

/** Throws 403 if the role of a person does not allow the call. */
export function assertRole(
  { role, isViewer }: Pick<SessionPerson, "role" | "isViewer">,
  access: KeyAccess,
  route: Pick<RouteDefinition, "method" | "path">,
): void {
  const { method } = route;
  if (access.kind === "operator" && isViewer === true && method !== "GET") {
    throw roleNotPermitted("operator_viewer");
  }
  if (role === undefined || !("scope" in access)) return;
  if (ROLE_RIGHTS[role].isSelfOnly === true && !isOpenToDevelopers(route)) {
    throw roleNotPermitted(role);
  }
  if (!mayCall(role, access.scope, method)) throw roleNotPermitted(role);
}

/**
 * Throws 403 if an operator who views an organization may not call the route. Only reads of the role viewer are open,
 * and the ends of the view and of the session.
 */
export function assertView(
  access: SessionAccess,
  route: Pick<RouteDefinition, "method" | "path">,
): void {
  if (access.endsView === true) return;
  if (route.method !== "GET") {
    const message = "An operator who views an organization cannot change anything. Leave the view.";
    throw new GatewayError("role_not_permitted", message);
  }
  assertRole({ role: VIEW_ROLE }, access.of, route);
}

/** The role of operators in organizations that they view. */
export const VIEW_ROLE: Role = "viewer";

function roleNotPermitted(role: string): GatewayError {
  return new GatewayError("role_not_permitted", `The role ${role} does not allow this.`);
}

/** Throws 403 if the key may not call a route with this access. */
export function assertAccess(access: KeyAccess, key: ApiKeyRecord, isOpenToLimited: boolean): void {
  if (access.kind === "public" || access.kind === "operator") return;
  if ((access.kind === "scim") !== (key.kind === "scim")) {
    const message =
      access.kind === "scim"
        ? "This endpoint needs a SCIM token (gateway_scim_…)."
        : "A SCIM token reaches only the endpoints below /scim/v2.";
    throw new GatewayError("wrong_key_kind", message);
  }
  if (access.kind === "scim") return;
  if (access.kind !== "self") {
    const isForSecretKeys = access.kind === "model" || access.kind === "storage";
    if (isForSecretKeys && key.kind === "management") {
      throw new GatewayError(
        "wrong_key_kind",
        "A management key cannot call this endpoint; use a secret key.",
      );
    }
    if (access.kind === "administration" && access.isForManagement && key.kind === "secret") {
      throw new GatewayError(
        "wrong_key_kind",
        "A secret key cannot call this endpoint; use a management key.",
      );
    }
    if (!holdsScope(key, access.scope)) {
      throw new GatewayError("missing_scope", `This API key lacks the scope ${access.scope}.`);
    }
  }
  if (!isOpenToLimited && isLimited(key)) {
    throw new GatewayError(
      "key_not_permitted",
      "This API key has a rate limit, a budget, a model list, an expiry, a team or an owner, so it cannot call this endpoint.",
    );
  }
}
