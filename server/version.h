/* The program's version. Thread-safety: a constant. */
#ifndef SERVER_VERSION_H
#define SERVER_VERSION_H

#define RESTORED_VERSION "0.1.0"

#endif
