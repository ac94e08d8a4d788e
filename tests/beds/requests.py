"""Requests for allocation candidates of which placement's answer says nothing."""

from collections.abc import Iterable

from reportclient.request import Wish


def adds_up_wrongly(wishes: Iterable[Wish]) -> bool:
    """
    Whether placement's answer depends on the order in which it looks at providers.

    With group_policy=isolate it adds the amounts of groups that ask one provider for the same class in rows that it
    uses again for the next candidate (RequestWideSearchContext.copy_arr_if_needed): then it may find none.
    """
    asked = [one for one in wishes if one.kind == "resources"]
    alone = {one.names for one in asked if not one.group}
    return any(str(one) == "group_policy=isolate" for one in wishes) and any(
        one.group and one.names in alone for one in asked
    )
