import { useState } from "preact/hooks";
import { call, session } from "../api.ts";
import { Button, Field } from "../components/controls.tsx";
import { Dialog, Form, perform, toast } from "../components/dialog.tsx";
import {
  Badge,
  Empty,
  LoadFailure,
  PageHead,
  Panel,
  Skeleton,
  Time,
} from "../components/display.tsx";
import { Table } from "../components/table.tsx";
import { NewPassword } from "../gate/gate.tsx";
import { type Resource, useResource } from "../resource.ts";
import { roleTitle } from "../rights.ts";
import { MemberAlerts } from "./member-alerts.tsx";
import { Passkeys } from "./passkeys.tsx";
import { SecondFactor } from "./second-factor.tsx";

/** The answer of GET /dashboard/api/account. */
export interface Account {
  readonly id: string;
  readonly email: string;
  readonly name: string;
  readonly has_second_factor: boolean;
  readonly sessions: readonly AccountSession[];
}

interface AccountSession {
  readonly is_current: boolean;
  readonly created_at: string;
  readonly last_used_at: string;
}

export function AccountPage() {
  const account = useResource<Account>("account");
  const { data, error, reload } = account;
  return (
    <>
      <PageHead title="Account" />
      {error !== undefined && <LoadFailure message={error} />}
      {data === undefined ? (
        error === undefined && <Skeleton />
      ) : (
        <>
          <Profile account={data} onChanged={reload} />
          <Password onChanged={reload} />
          <SecondFactor account={data} onChanged={reload} />
          <Passkeys />
          <MemberAlerts />
          <Sessions {...account} />
        </>
      )}
    </>
  );
}

interface AccountPartProps {
  readonly account: Account;
  onChanged(): void;
}

function Profile({ account, onChanged }: AccountPartProps) {
  const [name, setName] = useState(account.name);
  const role = session.value?.person?.role;
  const save = async () => {
    await call("PATCH", "account", { body: { name: name.trim() } });
    toast("Changed your name.");
    onChanged();
  };
  return (
    <Panel title="Profile">
      <dl class="facts">
        <dt>Email</dt>
        <dd>{account.email}</dd>
        <dt>Role</dt>
        <dd>{role === undefined ? "—" : roleTitle(role)}</dd>
      </dl>
      <div class="short-form">
        <Form submit="Save" isDisabled={name.trim() === account.name} onSubmit={save}>
          <Field
            label="Name"
            param="name"
            value={name}
            onInput={setName}
            isRequired
            autocomplete="name"
          />
        </Form>
      </div>
    </Panel>
  );
}

function Password({ onChanged }: { onChanged(): void }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <Panel title="Password" aside={<Button onClick={() => setOpen(true)}>Change password</Button>}>
      <p class="quiet">A change ends your other sessions.</p>
      {isOpen && <PasswordDialog onChanged={onChanged} onClose={() => setOpen(false)} />}
    </Panel>
  );
}

function PasswordDialog({ onChanged, onClose }: { onChanged(): void; onClose(): void }) {
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const change = async () => {
    const body = { current_password: current, password: next };
    await call("POST", "account/password", { body });
    toast("Changed your password.");
    onClose();
    onChanged();
  };
  return (
    <Dialog title="Change your password" onClose={onClose}>
      <Form submit="Change password" onCancel={onClose} onSubmit={change}>
        <CurrentPassword value={current} onInput={setCurrent} />
        <NewPassword label="New password" value={next} onInput={setNext} />
      </Form>
    </Dialog>
  );
}

interface CurrentPasswordProps {
  readonly value: string;
  onInput(value: string): void;
}

/** The field of the current password, with which the person confirms a change of the account. */
export function CurrentPassword({ value, onInput }: CurrentPasswordProps) {
  return (
    <Field
      label="Current password"
      type="password"
      value={value}
      onInput={onInput}
      isRequired
      autocomplete="current-password"
    />
  );
}

function Sessions({ data, reload }: Resource<Account>) {
  const sessions = data?.sessions ?? [];
  const end = () =>
    perform("Ended your other sessions.", async () => {
      await call("POST", "account/sessions/end");
      reload();
    });
  return (
    <Panel
      title="Sessions"
      aside={
        <Button isDisabled={sessions.length < 2} onClick={() => void end()}>
          End other sessions
        </Button>
      }
      isFlush
    >
      <Table
        label="Sessions"
        columns={[
          {
            title: "Started",
            cell: ({ created_at: at, is_current: isCurrent }: AccountSession) => (
              <span>
                <Time iso={at} form="exact" />{" "}
                {isCurrent && <Badge tone="good">This session</Badge>}
              </span>
            ),
          },
          { title: "Last used", cell: ({ last_used_at: at }) => <Time iso={at} /> },
        ]}
        rows={sessions}
        keyOf={({ created_at: at, last_used_at: usedAt }) => `${at} ${usedAt}`}
        empty={<Empty title="No sessions" />}
      />
    </Panel>
  );
}
