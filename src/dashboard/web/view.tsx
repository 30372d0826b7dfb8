import { session, startSession } from "./api.ts";
import { Button } from "./components/controls.tsx";
import { messageOf, toast } from "./components/dialog.tsx";
import { Notice } from "./components/display.tsx";
import { hrefOf, navigate } from "./router.ts";

/* An operator's view of an organization, read-only. The API refuses every change while it lasts. */

interface ViewedOrganization {
  readonly id: string;
  readonly name: string;
}

/** Opens an organization, on the page that is named. */
async function viewOrganization({ id }: ViewedOrganization, page = ""): Promise<void> {
  try {
    await startSession("session/view", { organization_id: id });
    navigate(hrefOf(page));
  } catch (error) {
    toast(messageOf(error), true);
  }
}

/** The name of an organization, which opens it as its own people see it. */
export function OrganizationButton({
  organization,
  page,
}: {
  readonly organization: ViewedOrganization;
  readonly page?: string;
}) {
  return (
    <Button
      variant="link"
      label={`View ${organization.name}`}
      onClick={() => void viewOrganization(organization, page)}
    >
      {organization.name}
    </Button>
  );
}

/** Says that an operator sees the organization as its own people do. Empty in other sessions. */
export function ViewBanner() {
  const viewed = session.value?.viewing ?? null;
  if (viewed === null) return null;
  const leave = async () => {
    try {
      await startSession("session/view", undefined, "DELETE");
      navigate(hrefOf(""));
    } catch (error) {
      toast(messageOf(error), true);
    }
  };
  return (
    <div class="view-banner">
      <Notice>
        <span>
          You are viewing <b>{viewed.name}</b> as an operator. You can change nothing, and its audit
          log shows your visit.
        </span>
        <Button onClick={() => void leave()}>Leave</Button>
      </Notice>
    </div>
  );
}
