import type Scimmy from "scimmy";
import type { DatabaseTransaction } from "../../../db/client.ts";
import { sqlState } from "../../../db/client.ts";
import { UNIQUE_VIOLATION } from "../../../db/error-states.ts";
import {
  changeMember,
  insertMember,
  LastOwnerError,
  removeMember,
} from "../../../db/queries/members.ts";
import { clearCredentials, findPerson, insertPerson } from "../../../db/queries/people.ts";
import {
  changeScimPerson,
  countScimGroups,
  countScimUsers,
  findScimGroups,
  findScimUsers,
  isUnbound,
  renameTeam,
  replaceTeamMembers,
  type ScimGroup,
  type ScimPage,
  type ScimUser,
  setExternalId,
} from "../../../db/queries/scim.ts";
import { deleteTeam, insertTeam, TooManyTeamsError } from "../../../db/queries/teams.ts";
import { newId } from "../../lib/ids.ts";
import { ROLES, type Role } from "../../lib/roles.ts";
import { isoTime } from "../../lib/utc-time.ts";
import { INITIAL_TEAM } from "../teams/teams.ts";

/** The organization of a request, and the transaction that makes all its changes or none. */
export interface ScimContext {
  readonly sql: DatabaseTransaction;
  readonly organizationId: string;
  readonly nowMs: number;
  /** Receives the error of a handler that is not one of SCIM. The library would answer it with 404. */
  onFailure(error: unknown): void;
}

/** Members, or teams, in one answer. */
export const MAX_PAGE = 1_000;
/** Members, or teams, that a filter other than one of equality, or an order, can read. */
const MAX_LISTED = 10_000;
const ONE: ScimPage = { limit: 1, offset: 0 };
const DEFAULT_ROLE: Role = "developer";
const EMAIL = /^[^\s@<>,;]+@[^\s@<>,;]+$/;

interface Resource {
  readonly id?: string;
  readonly filter?: ScimFilter;
  constraints?: {
    readonly startIndex?: number;
    readonly count?: number;
    readonly sortBy?: string;
    readonly totalResults?: number;
  };
}

/** A parsed filter: alternatives, each an object of conditions by attribute, such as `{userName: ["eq", "ada"]}`. */
type ScimFilter = readonly Readonly<Record<string, unknown>>[] & {
  match<Value>(values: readonly Value[]): Value[];
};

/** The attributes of a user that are read. */
interface UserInput {
  readonly userName?: string;
  readonly externalId?: string;
  readonly displayName?: string;
  readonly name?: {
    readonly formatted?: string;
    readonly givenName?: string;
    readonly familyName?: string;
  };
  readonly active?: boolean;
  readonly emails?: readonly { readonly value?: string; readonly primary?: boolean }[];
  readonly roles?: readonly { readonly value?: string }[];
}

interface GroupInput {
  readonly displayName?: string;
  readonly externalId?: string;
  readonly members?: readonly { readonly value?: string }[];
}

type Library = typeof Scimmy;
let library: Promise<Library> | undefined;

/** Returns the SCIM library with the gateway's users and groups. It is loaded at the first request that needs it. */
export function scimLibrary(): Promise<Library> {
  library ??= import("scimmy").then(({ default: scim }) => {
    declareResources(scim);
    return scim;
  });
  return library;
}

function declareResources(scim: Library): void {
  const fail = (status: number, type: string | null, detail: string) =>
    new scim.Types.Error(status, type as never, detail);
  /** Passes errors that are not of SCIM on to the request. */
  const guarded =
    <Rest extends unknown[], Result>(work: (...all: [...Rest, ScimContext]) => Promise<Result>) =>
    async (...all: [...Rest, ScimContext]): Promise<Result> => {
      try {
        return await work(...all);
      } catch (error) {
        if (error instanceof scim.Types.Error) throw error;
        (all.at(-1) as ScimContext).onFailure(error);
        throw fail(500, null, "The request failed.");
      }
    };
  const users = new ScimUsers(fail);
  const groups = new ScimGroups(fail);
  scim.Config.set({
    patch: true,
    filter: MAX_PAGE,
    sort: true,
    authenticationSchemes: [
      {
        type: "oauthbearertoken",
        name: "SCIM token",
        description: "A token of the organization, which begins with gateway_scim_.",
      },
    ],
  } as never);
  // RFC 7643 names no types of roles. The library's empty list of them would reject every type.
  for (const name of ["roles.type", "entitlements.type", "x509Certificates.type"]) {
    const attribute = scim.Schemas.User.definition.attribute(name) as unknown as {
      config: { canonicalValues: unknown };
    };
    attribute.config.canonicalValues = false;
  }
  scim.Resources.declare(scim.Resources.User, {
    basepath: "/scim/v2",
    ingress: guarded((resource: Resource, data: UserInput, context: ScimContext) =>
      users.write(resource, data, context),
    ),
    egress: guarded((resource: Resource, context: ScimContext) => users.read(resource, context)),
    degress: guarded((resource: Resource, context: ScimContext) => users.remove(resource, context)),
  } as never);
  scim.Resources.declare(scim.Resources.Group, {
    basepath: "/scim/v2",
    ingress: guarded((resource: Resource, data: GroupInput, context: ScimContext) =>
      groups.write(resource, data, context),
    ),
    egress: guarded((resource: Resource, context: ScimContext) => groups.read(resource, context)),
    degress: guarded((resource: Resource, context: ScimContext) =>
      groups.remove(resource, context),
    ),
  } as never);
}

type Fail = (status: number, type: string | null, detail: string) => Error;

/** Members as users of SCIM. */
class ScimUsers {
  readonly #fail: Fail;

  constructor(fail: Fail) {
    this.#fail = fail;
  }

  async read(resource: Resource, context: ScimContext): Promise<object> {
    const { id, filter } = resource;
    const { sql, organizationId } = context;
    if (id !== undefined) return userShape(this.#assertFound(await this.#find(id, context), id));
    const lookup = {
      id: equalTo(filter, "id"),
      email: equalTo(filter, "userName"),
      externalId: equalTo(filter, "externalId"),
    };
    return listed(resource, lookup, userShape, {
      count: () => countScimUsers(sql, organizationId, lookup),
      find: (page) => findScimUsers(sql, organizationId, lookup, page),
    });
  }

  async write({ id }: Resource, data: UserInput, context: ScimContext): Promise<object> {
    const email = this.#emailOf(data);
    const name = nameOf(data) ?? email;
    const memberId = id ?? (await this.#create(email, name, context));
    const { sql, organizationId, nowMs } = context;
    const before = this.#assertFound(await this.#find(memberId, context), memberId);
    if (before.email !== email || before.name !== name)
      await this.#rename(before, email, name, sql);
    const role = this.#roleOf(data, before.role);
    const change = { role, isActive: data.active ?? true, limits: {} };
    try {
      const facts = { newBudgetId: newId("bud"), nowMs };
      await changeMember(sql, organizationId, memberId, change, facts);
    } catch (error) {
      if (error instanceof LastOwnerError) throw this.#lastOwner();
      throw error;
    }
    await setExternalId(sql, "members", memberId, data.externalId ?? null);
    return userShape(this.#assertFound(await this.#find(memberId, context), memberId));
  }

  async remove({ id = "" }: Resource, { sql, organizationId }: ScimContext): Promise<void> {
    try {
      if (await removeMember(sql, organizationId, id)) return;
    } catch (error) {
      if (error instanceof LastOwnerError) throw this.#lastOwner();
      throw error;
    }
    throw this.#fail(404, null, `There is no user ${id}.`);
  }

  async #create(email: string, name: string, context: ScimContext): Promise<string> {
    const { sql, organizationId, nowMs } = context;
    const [present] = await findScimUsers(sql, organizationId, { email }, ONE);
    if (present !== undefined) {
      throw this.#fail(409, "uniqueness", `A member with the address ${email} exists already.`);
    }
    const person = await findPerson(sql, { email });
    if (person !== undefined && !(await isUnbound(sql, person.id))) {
      const detail = "The address has an account already. Invite the person instead.";
      throw this.#fail(409, "uniqueness", detail);
    }
    // Another person may know the password of an account whose address was never verified.
    if (person !== undefined && person.emailVerifiedAtMs === null) {
      await clearCredentials(sql, person.id);
    }
    const personId = person?.id ?? newId("usr");
    if (person === undefined) {
      await insertPerson(sql, {
        ...{ id: personId, email, name, passwordHash: null, operatorRole: null },
        createdAtMs: nowMs,
      });
    }
    const id = newId("mem");
    const member = { id, organizationId, personId, role: DEFAULT_ROLE, createdAtMs: nowMs };
    await insertMember(sql, member);
    return id;
  }

  /**
   * Changes address and name of an account, which only the identity provider of its sole organization may do: an
   * address that others can set would let them take the account over.
   */
  async #rename(
    { personId, isManaged, email: before }: ScimUser,
    email: string,
    name: string,
    sql: DatabaseTransaction,
  ): Promise<void> {
    if (!isManaged) {
      if (before.toLowerCase() === email.toLowerCase()) return;
      throw this.#fail(400, "mutability", "The account belongs to other organizations too.");
    }
    try {
      await sql.savepoint((inner) => changeScimPerson(inner, personId, { email, name }));
    } catch (error) {
      if (sqlState(error) !== UNIQUE_VIOLATION) throw error;
      throw this.#fail(409, "uniqueness", `An account with the address ${email} exists already.`);
    }
  }

  #roleOf({ roles = [] }: UserInput, before: Role): Role {
    const stated = roles.find(({ value }) => value !== undefined)?.value;
    if (stated === undefined || before === "owner") return before;
    const role = ROLES.find((one) => one === stated);
    if (role !== undefined && role !== "owner") return role;
    const accepted = ROLES.filter((one) => one !== "owner").join(", ");
    throw this.#fail(400, "invalidValue", `roles must have one of ${accepted}.`);
  }

  #emailOf({ userName = "", emails = [] }: UserInput): string {
    const primary = emails.find(({ primary: isPrimary }) => isPrimary === true) ?? emails[0];
    const email = [userName, primary?.value ?? ""].find((one) => EMAIL.test(one));
    if (email !== undefined && email.length <= 254) return email;
    throw this.#fail(400, "invalidValue", "userName, or an entry of emails, must be an address.");
  }

  async #find(id: string, { sql, organizationId }: ScimContext): Promise<ScimUser | undefined> {
    const [user] = await findScimUsers(sql, organizationId, { id }, ONE);
    return user;
  }

  #assertFound(user: ScimUser | undefined, id: string): ScimUser {
    if (user === undefined) throw this.#fail(404, null, `There is no user ${id}.`);
    return user;
  }

  #lastOwner(): Error {
    return this.#fail(409, null, "The organization needs an active owner.");
  }
}

/** Teams as groups of SCIM. */
class ScimGroups {
  readonly #fail: Fail;

  constructor(fail: Fail) {
    this.#fail = fail;
  }

  async read(resource: Resource, { sql, organizationId }: ScimContext): Promise<object> {
    const { id, filter } = resource;
    if (id !== undefined) {
      const [group] = await findScimGroups(sql, organizationId, { id }, ONE);
      return groupShape(this.#assertFound(group, id));
    }
    const lookup = {
      id: equalTo(filter, "id"),
      name: equalTo(filter, "displayName"),
      externalId: equalTo(filter, "externalId"),
    };
    return listed(resource, lookup, groupShape, {
      count: () => countScimGroups(sql, organizationId, lookup),
      find: (page) => findScimGroups(sql, organizationId, lookup, page),
    });
  }

  async write({ id }: Resource, data: GroupInput, context: ScimContext): Promise<object> {
    const { sql, organizationId } = context;
    const name = data.displayName ?? "";
    if (name === "" || name.length > 256) {
      throw this.#fail(400, "invalidValue", "displayName must have 1 to 256 characters.");
    }
    const teamId = id ?? newId("team");
    try {
      await sql.savepoint((inner) =>
        this.#store(teamId, name, id === undefined, { ...context, sql: inner }),
      );
    } catch (error) {
      if (sqlState(error) === UNIQUE_VIOLATION) {
        throw this.#fail(409, "uniqueness", `A team with the name ${name} exists already.`);
      }
      if (error instanceof TooManyTeamsError) {
        throw this.#fail(403, null, "The organization has the maximum number of teams.");
      }
      throw error;
    }
    await setExternalId(sql, "teams", teamId, data.externalId ?? null);
    const members = (data.members ?? []).flatMap(({ value }) => value ?? []);
    if (!(await replaceTeamMembers(sql, { organizationId, teamId }, members))) {
      throw this.#fail(400, "invalidValue", "One of the members does not exist.");
    }
    const [group] = await findScimGroups(sql, organizationId, { id: teamId }, ONE);
    return groupShape(this.#assertFound(group, teamId));
  }

  async remove({ id = "" }: Resource, { sql, organizationId }: ScimContext): Promise<void> {
    const keys = await deleteTeam(sql, organizationId, id);
    if (keys === undefined) throw this.#fail(404, null, `There is no group ${id}.`);
    if (keys > 0)
      throw this.#fail(409, null, `The team has ${keys} API keys. Delete or move them first.`);
  }

  async #store(
    id: string,
    name: string,
    isNew: boolean,
    { sql, organizationId, nowMs }: ScimContext,
  ): Promise<void> {
    if (isNew) {
      const team = { ...INITIAL_TEAM, id, organizationId, name, createdAtMs: nowMs };
      const limits = { dailyBudgetNano: null, monthlyBudgetNano: null, budgetId: newId("bud") };
      await insertTeam(sql, team, limits);
      return;
    }
    const [group] = await findScimGroups(sql, organizationId, { id }, ONE);
    this.#assertFound(group, id);
    await renameTeam(sql, id, name);
  }

  #assertFound(group: ScimGroup | undefined, id: string): ScimGroup {
    if (group === undefined) throw this.#fail(404, null, `There is no group ${id}.`);
    return group;
  }
}

interface Source<Value> {
  count(): Promise<number>;
  find(page: ScimPage): Promise<readonly Value[]>;
}

/**
 * Returns the resources of a list. The database finds the page of a list that is not sorted, and not filtered except by
 * equality. For others it reads all resources up to a bound, and the library filters, sorts and pages them.
 */
async function listed<Value>(
  resource: Resource,
  lookup: Readonly<Record<string, string | undefined>>,
  shapeOf: (value: Value) => object,
  { count, find }: Source<Value>,
): Promise<object[]> {
  const { filter, constraints: { startIndex = 1, count: limit = MAX_PAGE, sortBy } = {} } =
    resource;
  const isFound = Object.values(lookup).some((value) => value !== undefined);
  if (sortBy === undefined && (filter === undefined || isFound)) {
    const page = await find({ limit, offset: startIndex - 1 });
    // The page begins with the first resource that the library gets.
    resource.constraints = { count: limit, startIndex: 1, totalResults: await count() };
    return page.map(shapeOf);
  }
  const shapes = (await find({ limit: MAX_LISTED, offset: 0 })).map(shapeOf);
  return filter === undefined ? shapes : filter.match(shapes);
}

/** Returns the value of a filter that is only `attribute eq "value"`. Others read all resources. */
function equalTo(filter: ScimFilter | undefined, attribute: string): string | undefined {
  if (filter === undefined || filter.length !== 1) return undefined;
  const conditions = Object.entries(filter[0]!);
  const [name, condition] = conditions[0] ?? [];
  if (conditions.length !== 1 || name !== attribute || !Array.isArray(condition)) return undefined;
  const [comparator, value] = condition as unknown[];
  return comparator === "eq" && typeof value === "string" ? value : undefined;
}

function nameOf({ displayName, name }: UserInput): string | undefined {
  const parts = [name?.givenName, name?.familyName].filter(
    (part) => part !== undefined && part !== "",
  );
  const stated = [displayName, name?.formatted, parts.join(" ")].find(
    (one) => one !== undefined && one !== "",
  );
  return stated?.slice(0, 256);
}

function userShape(user: ScimUser): object {
  return {
    id: user.id,
    ...(user.externalId !== null && { externalId: user.externalId }),
    userName: user.email,
    name: { formatted: user.name },
    displayName: user.name,
    active: user.isActive,
    emails: [{ value: user.email, type: "work", primary: true }],
    roles: [{ value: user.role, primary: true }],
    groups: user.teams.map(({ id, name }) => ({ value: id, display: name, type: "direct" })),
    meta: { created: isoTime(user.createdAtMs), lastModified: isoTime(user.createdAtMs) },
  };
}

function groupShape(group: ScimGroup): object {
  return {
    id: group.id,
    ...(group.externalId !== null && { externalId: group.externalId }),
    displayName: group.name,
    members: group.members.map(({ id, email }) => ({ value: id, display: email, type: "User" })),
    meta: { created: isoTime(group.createdAtMs), lastModified: isoTime(group.createdAtMs) },
  };
}
