/* The store's statements by number; store_sql.h has their texts. Thread-safety: constants. */
#ifndef SERVER_STORE_STORE_STATEMENT_H
#define SERVER_STORE_STORE_STATEMENT_H

#define STORE_SQL_VERSION 4 /* of the tables; a store of a higher one is refused, one of a lower one is brought up */

/* A statement of the schema, and the version that it came with. */
struct store_step {
    int version;
    const char *sql;
};

enum store_statement {
    STORE_BEGIN,
    STORE_COMMIT,
    STORE_ROLLBACK,
    STORE_SAVE,
    STORE_RELEASE,
    STORE_UNDO,
    STORE_INSERT,
    STORE_SAME_KEY,
    STORE_TOUCH,
    STORE_END_OVER,
    STORE_CLAIM,
    STORE_SET_ASIDE,
    STORE_LOSE,
    STORE_RENEW,
    STORE_FINISH,
    STORE_RESULT,
    STORE_GIVE_BACK,
    STORE_ADOPT,
    STORE_WAIT_AGAIN,
    STORE_STATE,
    STORE_CANCEL_WAITING,
    STORE_CANCEL_RUNNING,
    STORE_FORGET_RESULT,
    STORE_FORGET,
    STORE_EXPIRE_RESULTS,
    STORE_EXPIRE_IDS,
    STORE_EXPIRE,
    STORE_FORGET_GONE,
    STORE_GONE,
    STORE_GET,
    STORE_AFTER,
    STORE_LIST, /* and three more: + 1 of a token, + 2 of a batch */
    STORE_COUNT = STORE_LIST + 4,
    STORE_COUNT_WAITING = STORE_COUNT + 4,
    STORE_COUNT_AT_HAND = STORE_COUNT_WAITING + 4,
    STORE_WAITING,
    STORE_PLACE,
    STORE_AHEAD,
    STORE_AHEAD_OF_NEW,
    STORE_NEAREST,
    STORE_FILES,
    STORE_KNOWN,
    STORE_PROMISED,
    STORE_BEAT,
    STORE_NOTIFY,
    STORE_WORKER,
    STORE_WORKER_GONE,
    STORE_WORKERS,
    STORE_CLOCK,
    STORE_NEEDS,
    STORE_PUBLISH,
    STORE_UNPUBLISH,
    STORE_PUBLISHED,
    STORE_HOOK_ADD,
    STORE_HOOK_DONE,
    STORE_HOOK_TOLD,
    STORE_HOOK_LEASE,
    STORE_HOOK_TAKE,
    STORE_COPY_READ,
    STORE_COPY_INSERT,
    STORE_COPY_STATE,
    STORE_COPY_DROP,
    STORE_COPY_DROP_RESULT,
    STORE_COPY_DROP_HOOK,
    STORE_STATEMENTS
};

#endif
