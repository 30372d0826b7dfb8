import { ALL_SCOPES, SCOPES, type Scope } from "./api-key-record.ts";

/** The roles of members of an organization, the highest first. */
export const ROLES = ["owner", "admin", "developer", "billing", "viewer"] as const;
export type Role = (typeof ROLES)[number];

/** The roles of operators of the gateway, the highest first. */
export const OPERATOR_ROLES = ["operator", "operator_viewer"] as const;
export type OperatorRole = (typeof OPERATOR_ROLES)[number];

export const TEAM_ROLES = ["lead", "member"] as const;
export type TeamRole = (typeof TEAM_ROLES)[number];

interface RoleRights {
  /** Explanation at the choice of a role. */
  readonly description: string;
  /** Scopes of routes that change things. */
  readonly changes: readonly Scope[];
  /** Scopes of routes that only read. */
  readonly reads: readonly Scope[];
  /** Scopes that keys may get from it. Absent: those of `changes`. */
  readonly keys?: readonly Scope[];
  /** The roles that it can give to others, and take away. */
  readonly grants: readonly Role[];
  /** True if it sees and creates only the keys, usage and requests of its own. */
  readonly isSelfOnly?: true;
}

const ALL: readonly Scope[] = SCOPES;
/** Scopes of files, batches, vector stores, stored responses and fine-tuning jobs. */
const OBJECTS: readonly Scope[] = ["files:read", "files:write", "responses", "fine_tuning"];
const VISIBLE = ALL.filter((scope) => scope !== "provider_keys:manage");

/** The rights of each role. The dashboard, the documentation and every check of access follow from these rows. */
export const ROLE_RIGHTS: Readonly<Record<Role, RoleRights>> = {
  owner: {
    description: "May do everything, and give every role.",
    changes: ALL,
    reads: ALL,
    grants: ROLES,
  },
  admin: {
    description: "May do everything except pay, and give every role except owner.",
    changes: ALL.filter((scope) => scope !== "billing:write"),
    reads: ALL,
    grants: ["admin", "developer", "billing", "viewer"],
  },
  developer: {
    description:
      "Creates keys within the policy of a team. Sees only those keys, their usage, their requests and their objects.",
    changes: ["keys:manage", ...OBJECTS],
    reads: [
      "keys:manage",
      "models:read",
      "usage:read",
      "presets:manage",
      "guardrails:manage",
      ...OBJECTS,
    ],
    keys: [
      "chat:completions",
      "responses",
      "embeddings",
      "images",
      "audio",
      "files:read",
      "files:write",
      "fine_tuning",
      "models:read",
      "usage:read",
    ],
    grants: [],
    isSelfOnly: true,
  },
  billing: {
    description: "Sees usage, requests and credits, and pays. Sees no keys.",
    changes: ["billing:write"],
    reads: ["billing:read", "billing:write", "models:read", "usage:read"],
    grants: [],
  },
  viewer: {
    description: "Sees everything and changes nothing.",
    changes: [],
    reads: VISIBLE,
    grants: [],
  },
};

/** Returns true if a role may call a route with this scope. */
export function mayCall(role: Role, scope: Scope, method: string): boolean {
  const { changes, reads } = ROLE_RIGHTS[role];
  return (method === "GET" ? reads : changes).includes(scope);
}

/** Returns the scopes of a role's sessions. Those of routes that change things count only with `mayCall`. */
export function scopesOfRole(role: Role): readonly string[] {
  const { changes, reads } = ROLE_RIGHTS[role];
  return role === "owner" ? ALL_SCOPES : [...new Set([...changes, ...reads])];
}

/** Returns the scopes that keys may get from a member with the role. */
export function grantedScopesOf(role: Role): readonly string[] {
  const { changes, keys = changes } = ROLE_RIGHTS[role];
  return role === "owner" ? ALL_SCOPES : keys;
}

/** Returns true if a member with one role may give, or take away, the other. */
export function mayGrant(role: Role, granted: Role): boolean {
  return ROLE_RIGHTS[role].grants.includes(granted);
}

/** Scopes that a session needs for a key of the playground: to create keys, and to give them model calls. */
export const PLAYGROUND_NEEDS = ["keys:manage", "chat:completions"] as const;

/** The roles whose members get a key of the playground. */
export const PLAYGROUND_ROLES: readonly Role[] = ROLES.filter(
  (role) =>
    mayCall(role, "keys:manage", "POST") && grantedScopesOf(role).includes("chat:completions"),
);
