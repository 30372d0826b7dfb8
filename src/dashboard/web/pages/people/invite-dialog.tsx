import { useState } from "preact/hooks";
import type { Role } from "../../../../lib/roles.ts";
import { call } from "../../api.ts";
import { Button, CopyText, Field } from "../../components/controls.tsx";
import { Dialog, Form } from "../../components/dialog.tsx";
import { Notice } from "../../components/display.tsx";
import { RoleChoice, TeamChecks } from "./member-dialog.tsx";
import type { Team } from "./names.ts";

interface InviteDialogProps {
  readonly teams: readonly Team[];
  onChanged(): void;
  onClose(): void;
}

/** Invites a person, and shows the link once. */
export function InviteDialog({ teams, onChanged, onClose }: InviteDialogProps) {
  const [email, setEmail] = useState("");
  const [role, setRole] = useState<Role>("developer");
  const [teamIds, setTeamIds] = useState<readonly string[]>([]);
  const [invited, setInvited] = useState<Invited>();
  const invite = async () => {
    const body = { email: email.trim(), role, team_ids: teamIds };
    setInvited(await call<Invited>("POST", "v1/invitations", { body }));
    onChanged();
  };
  if (invited !== undefined) return <InvitationLink {...{ invited, email, onClose }} />;
  return (
    <Dialog title="Invite a member" onClose={onClose}>
      <Form submit="Invite" onCancel={onClose} onSubmit={invite}>
        <Field
          label="Email"
          param="email"
          type="email"
          value={email}
          onInput={setEmail}
          isRequired
        />
        <RoleChoice role={role} onChange={setRole} />
        <TeamChecks {...{ teams }} chosen={teamIds} onChange={setTeamIds} />
      </Form>
    </Dialog>
  );
}

/** The answer of POST /v1/invitations. */
interface Invited {
  readonly url: string;
  readonly email_status: "sent" | "failed" | "not_configured";
}

interface InvitationLinkProps {
  readonly invited: Invited;
  readonly email: string;
  onClose(): void;
}

function InvitationLink({ invited, email, onClose }: InvitationLinkProps) {
  const { url, email_status: status } = invited;
  const outcome = {
    sent: `The link was mailed to ${email}. If the message does not arrive, send the link yourself.`,
    failed: `The mail server did not accept the message. Send the link to ${email} yourself.`,
    not_configured: `This gateway sends no mail. Send the link to ${email} yourself.`,
  }[status];
  return (
    <Dialog title="Invitation created" onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onClose();
        }}
      >
        <Notice tone={status === "sent" ? "good" : "warn"}>{outcome}</Notice>
        <CopyText text={url} label="invitation link" />
        <p class="hint">
          The link works once, for 7 days. It is shown only now. Anyone with the link can join, so
          send it to this person only.
        </p>
        <footer>
          <Button type="submit" variant="primary">
            Done
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}
