import type { OperatorRole, Role } from "./roles.ts";

/** A rule: people with the value in a claim get the grant, as long as they have the value. */
export type IdentityRule = {
  readonly claim: string;
  readonly value: string;
} & (
  | {
      readonly organization_id: string;
      readonly role: Role;
      readonly team_ids?: readonly string[];
    }
  | { readonly operator_role: OperatorRole }
);
