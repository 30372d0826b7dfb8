import { useState } from "preact/hooks";
import { call, session } from "../../api.ts";
import { Button } from "../../components/controls.tsx";
import { Confirm, perform, toast } from "../../components/dialog.tsx";
import { Badge, Empty, PageHead, Panel, Time } from "../../components/display.tsx";
import { ActionMenu, type MenuItem } from "../../components/menu.tsx";
import { type Column, OffsetPager, Table } from "../../components/table.tsx";
import { usd } from "../../format.ts";
import { useResource } from "../../resource.ts";
import { grantableRoles, mayChange, roleTitle } from "../../rights.ts";
import { useNewDialog } from "../../router.ts";
import { Invitations, invitationsPath } from "./invitations.tsx";
import { InviteDialog } from "./invite-dialog.tsx";
import { MemberDialog } from "./member-dialog.tsx";
import { type List, type Member, type Team, useTeams } from "./names.ts";

const PAGE_SIZE = 50;

type MemberAction = { readonly kind: "edit" | "remove" | "deactivate"; readonly member: Member };

export function MembersPage() {
  const [offset, setOffset] = useState(0);
  const [action, setAction] = useState<MemberAction | "invite">();
  const { data, error, reload } = useResource<List<Member>>(
    `v1/members?limit=${PAGE_SIZE}&offset=${offset}`,
  );
  const invitations = useResource<List<never>>(invitationsPath);
  const teams = useTeams().data?.data ?? [];
  const close = () => setAction(undefined);
  useNewDialog(() => setAction("invite"));
  const activate = (member: Member) =>
    perform(`Activated ${member.name}.`, async () => {
      await call("PATCH", `v1/members/${member.id}`, { body: { is_active: true } });
      reload();
    });
  return (
    <>
      <PageHead title="Members">
        <Button variant="primary" needs="keys:manage" onClick={() => setAction("invite")}>
          Invite member
        </Button>
      </PageHead>
      <Panel isFlush>
        <Table
          label="Members"
          columns={columns(teams, setAction, activate)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title="No members yet">
              <p>
                A member signs in with an account and has a role. Existing keys continue to work.
              </p>
              <Button needs="keys:manage" onClick={() => setAction("invite")}>
                Invite your first member
              </Button>
            </Empty>
          }
        />
        <OffsetPager
          listed={data}
          total={data?.total}
          offset={offset}
          pageSize={PAGE_SIZE}
          onTurn={setOffset}
        />
      </Panel>
      <Invitations listed={invitations} teams={teams} />
      {action === "invite" && (
        <InviteDialog teams={teams} onChanged={invitations.reload} onClose={close} />
      )}
      {action !== undefined && action !== "invite" && (
        <ActionDialog {...action} teams={teams} onChanged={reload} onClose={close} />
      )}
    </>
  );
}

interface ActionDialogProps extends MemberAction {
  readonly teams: readonly Team[];
  onChanged(): void;
  onClose(): void;
}

function ActionDialog({ kind, member, teams, onChanged, onClose }: ActionDialogProps) {
  if (kind === "edit") {
    return <MemberDialog edited={member} {...{ teams, onChanged, onClose }} />;
  }
  const done = (text: string) => {
    toast(text);
    onClose();
    onChanged();
  };
  if (kind === "deactivate") {
    return (
      <Confirm
        title={`Deactivate ${member.name}?`}
        action="Deactivate"
        onClose={onClose}
        onConfirm={async () => {
          await call("PATCH", `v1/members/${member.id}`, { body: { is_active: false } });
          done(`Deactivated ${member.name}.`);
        }}
      >
        The member's sessions in this organization end, and requests with its keys are rejected,
        within a second. You can activate the member again.
      </Confirm>
    );
  }
  return (
    <Confirm
      title={`Remove ${member.name}?`}
      action="Remove member"
      onClose={onClose}
      onConfirm={async () => {
        await call("DELETE", `v1/members/${member.id}`);
        done(`Removed ${member.name}.`);
      }}
    >
      The member's sessions in this organization end, and its keys no longer work, within a second.
      To return, <b>{member.email}</b> needs a new invitation.
    </Confirm>
  );
}

function columns(
  teams: readonly Team[],
  onAction: (action: MemberAction) => void,
  onActivate: (member: Member) => void,
): Column<Member>[] {
  return [
    {
      title: "Name",
      cell: (member) => (
        <span>
          <span class="strong">{member.name}</span>{" "}
          {isYou(member) && <Badge tone="good">You</Badge>}
          <span class="sub">{member.email}</span>
        </span>
      ),
    },
    { title: "Role", cell: ({ role }) => roleTitle(role) },
    {
      title: "State",
      isCorner: true,
      cell: ({ is_active: isActive }) =>
        isActive ? <Badge tone="good">Active</Badge> : <Badge>Deactivated</Badge>,
    },
    {
      title: "Teams",
      cell: (member) => teamNames(member.teams, teams),
    },
    { title: "Budget", isSecondary: true, isOptional: true, cell: budgets },
    {
      title: "Last sign-in",
      isSecondary: true,
      isOptional: true,
      cell: ({ last_sign_in_at: at }) => <Time iso={at} otherwise="Never" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (member) => <Actions {...{ member, onAction, onActivate }} />,
    },
  ];
}

const isYou = ({ id }: Member) => id === session.value?.person?.member_id;

/** Returns the names of teams, separated by commas. A team that is not listed is shown by its id. */
export function teamNames(
  of: readonly { readonly id: string }[],
  teams: readonly Pick<Team, "id" | "name">[],
) {
  if (of.length === 0) return <span class="quiet">None</span>;
  return of.map(({ id }) => teams.find((team) => team.id === id)?.name ?? id).join(", ");
}

function budgets({ daily_budget_usd: daily, monthly_budget_usd: monthly }: Member) {
  if (daily === null && monthly === null) return <span class="quiet">No budget</span>;
  return (
    <span class="stacked">
      {daily !== null && <span class="nowrap">{usd(daily)} a day</span>}
      {monthly !== null && <span class="nowrap">{usd(monthly)} a month</span>}
    </span>
  );
}

interface ActionsProps {
  readonly member: Member;
  onAction(action: MemberAction): void;
  onActivate(member: Member): void;
}

function Actions({ member, onAction, onActivate }: ActionsProps) {
  if (!mayChange("keys:manage")) return null;
  if (!grantableRoles().includes(member.role)) {
    return <span class="quiet">Managed by owners</span>;
  }
  const { name, is_active: isActive } = member;
  const activation: MenuItem = isActive
    ? {
        label: "Deactivate",
        icon: "power",
        onSelect: () => onAction({ kind: "deactivate", member }),
      }
    : { label: "Activate", icon: "power", onSelect: () => onActivate(member) };
  const removal: MenuItem = {
    ...{ label: "Remove", icon: "trash-2", isDanger: true },
    onSelect: () => onAction({ kind: "remove", member }),
  };
  return (
    <>
      <Button
        variant="quiet"
        label={`Edit ${name}`}
        onClick={() => onAction({ kind: "edit", member })}
      >
        Edit
      </Button>
      {!isYou(member) && <ActionMenu label={`Actions for ${name}`} items={[activation, removal]} />}
    </>
  );
}
