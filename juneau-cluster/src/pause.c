/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * What holds a Pod's namespaces: waits until it is told to end, and lets the kernel bury what becomes its child where
 * containers of a Pod share their processes.
 */
#include <signal.h>
#include <unistd.h>

static void end(int signal)
{
	(void)signal;
	_exit(0);
}

int main(void)
{
	signal(SIGTERM, end);
	signal(SIGINT, end);
	signal(SIGCHLD, SIG_IGN);
	for (;;)
		pause();
}
