import type { Database } from "../../db/client.ts";

interface MemberOptions {
  /** Id of the organization. */
  readonly organizationId: string;
  readonly isActive?: boolean;
}

/** Inserts a developer with an account, as an accepted invitation does. Returns the member's id. */
export async function addMember(
  sql: Database,
  { organizationId, isActive = true }: MemberOptions,
): Promise<string> {
  const [id, person] = [crypto.randomUUID(), crypto.randomUUID()].map((uuid) =>
    uuid.replaceAll("-", ""),
  );
  await sql`INSERT INTO people (id, email, name, created_at)
    VALUES (${`usr_${person}`}, ${`${person}@example.com`}, 'Ada', now())`;
  await sql`INSERT INTO members (id, organization_id, person_id, role, is_active, created_at)
    VALUES (${`mem_${id}`}, ${organizationId}, ${`usr_${person}`}, 'developer', ${isActive}, now())`;
  return `mem_${id}`;
}
