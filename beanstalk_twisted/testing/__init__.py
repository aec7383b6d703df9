"""The test double: the real server on a clock that stands still, for the tests of whoever uses it.

`double.Beanstalk` is for code on Twisted, in one process and without sockets.
`sockets.BeanstalkServer` listens on a port, in a thread, for any other client.  Both are this
package's own server, its queue, protocol and log; nothing of it is imitated.  What is added lies
around it: time that passes when the test says so (`network`), connections to which things happen
(`wire`), a record of every command (`recording`), and assertions.  `plugin` gives both to pytest;
the page is docs/testing.md.
"""

from typing import TYPE_CHECKING

from beanstalk_twisted.exports import lazily

if TYPE_CHECKING:
    from beanstalk_twisted.testing.double import Beanstalk
    from beanstalk_twisted.testing.sockets import BeanstalkServer
else:
    __getattr__ = lazily(__name__, {
        "double": "Beanstalk",
        "sockets": "BeanstalkServer",
    })  # fmt: skip

__all__ = ["Beanstalk", "BeanstalkServer"]
