<?php
// PHP's Pheanstalk. usage: php pheanstalk.php PORT
require_once 'Pheanstalk/autoload.php';

use Pheanstalk\Pheanstalk;

function check(bool $what): void {
    if (!$what) throw new Exception('not as expected');
}

$p = Pheanstalk::create('127.0.0.1', (int)$argv[1]);
$p->useTube('php');
$p->watchOnly('php');
$job = $p->put('from php', 5, 0, 60);
$got = $p->reserveWithTimeout(5);
check($got->getId() === $job->getId() && $got->getData() === 'from php');
$p->touch($got);
$p->release($got, 9, 0);
$got = $p->reserve();
$p->bury($got, 3);
check($p->kick(10) === 1);
check($p->peekReady()->getId() === $job->getId());
check((int)$p->statsTube('php')['current-jobs-ready'] === 1);
$p->pauseTube('php', 0);
$p->delete($job);
check(in_array('php', $p->listTubes()));
echo "pheanstalk: passed\n";
