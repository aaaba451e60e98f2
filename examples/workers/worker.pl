# Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- perl worker.pl
use strict;
use warnings;
use IO::Handle;
use JSON::PP;

my $dir = $ENV{ORDERS};
open my $answers, '>&=', $ENV{DELAYQ_ANSWER_FD} or die "no answers: $!\n";
$answers->autoflush;
while (my $line = <STDIN>) {
    my $job = decode_json($line);
    my $answer = eval {
        my $id = ref $job->{payload} eq 'HASH' ? $job->{payload}{orderId} : undef;
        return "dead $job->{ticket} no order id" if ref $id || ($id // '') !~ /\A\d+\z/; # true is a ref
        return "dead $job->{ticket} no order $id" unless -e "$dir/$id";
        open my $order, '<', "$dir/$id" or die "$id: $!\n";
        my $state = <$order> // die "$id: $!\n";
        if ($state =~ /^open/) {
            open my $closed, '>>', "$dir/closed" or die "closed: $!\n";
            print $closed "$id\n";
        }
        "ok $job->{ticket}";
    } // "retry $job->{ticket} - " . (split /\n/, $@)[0];
    print $answers "$answer\n";
}
