import { useState } from "preact/hooks";
import type { Role } from "../../../../lib/roles.ts";
import { call } from "../../api.ts";
import { Button } from "../../components/controls.tsx";
import { Confirm, toast } from "../../components/dialog.tsx";
import { Badge, Panel, Time } from "../../components/display.tsx";
import { type Column, Table } from "../../components/table.tsx";
import type { Resource } from "../../resource.ts";
import { roleTitle } from "../../rights.ts";
import { teamNames } from "./members.tsx";
import type { List, Team } from "./names.ts";

/** An invitation in the answer of GET /v1/invitations. */
export interface Invitation {
  readonly id: string;
  readonly email: string;
  readonly role: Role;
  readonly team_ids: readonly string[];
  readonly expires_at: string;
  readonly accepted_at: string | null;
}

/** The newest 1,000 invitations. */
export const invitationsPath = "v1/invitations?limit=1000";

interface InvitationsProps {
  readonly listed: Resource<List<Invitation>>;
  readonly teams: readonly Team[];
}

/** Invitations that are not accepted yet. */
export function Invitations({ listed, teams }: InvitationsProps) {
  const [withdrawn, setWithdrawn] = useState<Invitation>();
  const open = listed.data?.data.filter(({ accepted_at: at }) => at === null);
  if (open !== undefined && open.length === 0) return null;
  const close = () => setWithdrawn(undefined);
  return (
    <Panel title="Open invitations" isFlush>
      <Table
        label="Open invitations"
        columns={columns(teams, setWithdrawn)}
        rows={open}
        error={listed.error}
        keyOf={({ id }) => id}
        empty={null}
      />
      {withdrawn !== undefined && (
        <Confirm
          title="Withdraw this invitation?"
          action="Withdraw invitation"
          onClose={close}
          onConfirm={async () => {
            await call("DELETE", `v1/invitations/${withdrawn.id}`);
            toast(`Withdrew the invitation of ${withdrawn.email}.`);
            close();
            listed.reload();
          }}
        >
          The link that <b>{withdrawn.email}</b> got no longer works.
        </Confirm>
      )}
    </Panel>
  );
}

function columns(
  teams: readonly Team[],
  onWithdraw: (invitation: Invitation) => void,
): Column<Invitation>[] {
  return [
    { title: "Email", cell: ({ email }) => <span class="strong">{email}</span> },
    { title: "Role", cell: ({ role }) => roleTitle(role) },
    {
      title: "Teams",
      cell: ({ team_ids: ids }) =>
        teamNames(
          ids.map((id) => ({ id })),
          teams,
        ),
    },
    {
      title: "Expires",
      cell: ({ expires_at: at }) =>
        Date.parse(at) <= Date.now() ? <Badge tone="bad">Expired</Badge> : <Time iso={at} />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (invitation) => (
        <Button
          variant="quiet"
          needs="keys:manage"
          label={`Withdraw the invitation of ${invitation.email}`}
          onClick={() => onWithdraw(invitation)}
        >
          Withdraw
        </Button>
      ),
    },
  ];
}
